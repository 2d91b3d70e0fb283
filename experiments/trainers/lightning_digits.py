"""The network, the data and the four faults that both Lightning trainings share.

A fault is one argument, and everything else stays as in the healthy training, so that it is known
what a verdict has to be. Without one the training reaches a loss near 0.1 in six passes.
"""

from __future__ import annotations

from typing import Literal

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.plugins import MixedPrecision
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset

from stabexp.tasks.digits import digits

Fault = Literal["lr", "fp16", "bad_sample", "clip"]
"""Too high a rate · overflow in float16 · three broken images · bursts that nothing clips."""

VERDICTS: dict[Fault, str] = {
    "lr": "learning_rate",
    "fp16": "precision",
    "bad_sample": "data",
    "clip": "clip_norm",
}
"""What a bisect has to find."""

BROKEN = (400, 1000, 1234)
BATCH, WARMUP = 32, 30


class Digits(L.LightningModule):
    """Say which of ten digits an image of 8 × 8 pixels shows."""

    def __init__(
        self, *, lr: float = 0.05, fault: Fault | None = None, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.lr = 1.5 if fault == "lr" else lr
        self.fixed_point = 2.0**13 if fault == "fp16" else 1.0
        self.hidden = nn.Linear(64, 128)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(128, 10)

    def forward(self, pixels: Tensor) -> Tensor:
        hidden = self.dropout(self.hidden(pixels).relu())
        # An accumulator in fixed point: harmless in float32, and float16 ends at 65,504.
        logits: Tensor = (self.head(hidden) * self.fixed_point) / self.fixed_point
        return logits

    def loss(self, batch: list[Tensor]) -> Tensor:
        """Return the mean over the batch of weight times cross-entropy."""
        pixels, labels, weights = batch
        return (weights * F.cross_entropy(self(pixels), labels, reduction="none")).mean()

    def configure_optimizers(self) -> dict[str, object]:
        optimizer = torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)
        ramp = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / WARMUP))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": ramp, "interval": "step"}}


def loader(fault: Fault | None = None) -> DataLoader[list[Tensor]]:
    """Return shuffled batches of pixels (32, 64), labels (32,) and importance weights (32,)."""
    images, labels = digits()
    pixels, labels = images.flatten(1).clone(), labels.clone()
    weights = torch.ones(len(labels))
    if fault == "bad_sample":
        rows = list(BROKEN)
        pixels[rows] *= 1000.0
        labels[rows] = (labels[rows] + 5) % 10  # nobody could label them
    if fault == "clip":
        weights[::300] = 200.0  # as after importance sampling
    return DataLoader(TensorDataset(pixels, labels, weights), batch_size=BATCH, shuffle=True)


def trainer(
    *callbacks: Callback, fault: Fault | None = None, epochs: int = 6, clip: float | None = None
) -> L.Trainer:
    """Return a trainer that writes no files of its own."""
    return L.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        callbacks=list(callbacks),
        plugins=MixedPrecision("16-mixed", device="cpu") if fault == "fp16" else None,
        gradient_clip_val=clip,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
