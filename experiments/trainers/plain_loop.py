"""A loop of one's own that diverges by one seeded fault, written as such loops are.

A network with dropout learns digits from a sampler that shows every class equally often, two
micro-batches to an update, with a warm-up, autocast, a gradient scaler and clipping of the loop's
own. Every image has a weight, as a curated data set has. `fault` says what is wrong:

- lr: the learning rate is many times what the network bears, and nothing clips
- fp16: autocast is float16, and the logits go through an accumulator in fixed point, whose numbers
  outgrow 65,504
- bad_sample: one image is a thousand times too bright, and wrongly labelled
- clip: a few images count two hundred times, as after importance sampling, and nothing
  clips
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from stabexp import Run
from stabexp.tasks.digits import digits

Fault = Literal["lr", "fp16", "bad_sample", "clip"]

VERDICTS: dict[Fault, str] = {
    "lr": "learning_rate",
    "fp16": "precision",
    "bad_sample": "data",
    "clip": "clip_norm",
}
"""What a bisect has to find."""

BROKEN = 1234
BATCH, ACCUMULATE, WARMUP = 16, 2, 20
CLIP = 5.0
"""Norm that the healthy training clips at; it rarely does."""


class Network(nn.Module):
    """Say which of ten digits an image of 8 × 8 pixels shows."""

    def __init__(self, fault: Fault | None = None, *, width: int = 128) -> None:
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(width, 10)
        self.fixed_point = 2.0**13 if fault == "fp16" else 1.0

    def forward(self, pixels: Tensor) -> Tensor:
        # An accumulator in fixed point: harmless in float32, and float16 ends at 65,504.
        logits: Tensor = (self.head(self.hidden(pixels)) * self.fixed_point) / self.fixed_point
        return logits


def samples(fault: Fault | None = None) -> TensorDataset:
    """Return pixels (64,), label () and importance weight () of 1,797 images."""
    images, labels = digits()
    pixels, labels = images.flatten(1).clone(), labels.clone()
    weights = torch.ones(len(labels))
    if fault == "bad_sample":
        pixels[BROKEN] *= 1000.0
        labels[BROKEN] = (labels[BROKEN] + 5) % 10  # nobody could label it
    if fault == "clip":
        heavy = torch.rand(len(labels), generator=torch.Generator().manual_seed(7)) < 0.004
        weights[heavy] = 200.0
    return TensorDataset(pixels, labels, weights)


def balanced(data: TensorDataset) -> WeightedRandomSampler:
    """Return a sampler that shows every class about equally often, no image twice in a pass."""
    labels = data.tensors[1]
    share = 1.0 / torch.bincount(digits()[1]).double()
    return WeightedRandomSampler(share[labels].tolist(), len(labels) - 5, replacement=False)


def weighted_loss(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """Return the mean over the batch of weight times cross-entropy."""
    return (weights * F.cross_entropy(logits, labels, reduction="none")).mean()


def rate(fault: Fault | None) -> float:
    """Return the learning rate."""
    return 1.5 if fault == "lr" else 0.05


def ramp(step: int) -> float:
    """Return the warm-up's factor on the rate."""
    return min(1.0, (step + 1) / WARMUP)


def train(run: Run, fault: Fault | None = None, epochs: int = 6) -> None:
    """Train on digits, with one fault or none."""
    data = samples(fault)
    loader = DataLoader(data, batch_size=BATCH, sampler=balanced(data), drop_last=True)
    model = Network(fault)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate(fault), momentum=0.9)
    scheduler = LambdaLR(optimizer, ramp)
    scaler = torch.amp.GradScaler("cpu", enabled=fault == "fp16")
    steps = run.steps(
        loader,
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        scaler=scaler,
        epochs=epochs,
    )
    for number, (pixels, labels, weights) in enumerate(steps, start=1):
        with torch.autocast("cpu", dtype=torch.float16, enabled=fault == "fp16"):
            loss = weighted_loss(model(pixels), labels, weights)
        run.log(loss)
        scaler.scale(loss / ACCUMULATE).backward()
        if number % ACCUMULATE:
            continue
        if fault in (None, "fp16"):
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        scheduler.step()
