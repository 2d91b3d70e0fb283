"""Lightning steps the optimizer itself: automatic optimization, the usual way."""

from __future__ import annotations

from torch import Tensor

from experiments.trainers.lightning_digits import VERDICTS, Digits, Fault, loader, trainer
from stabexp import Run
from stabexp.integrations.lightning import StabexpCallback

__all__ = ["VERDICTS", "train"]


class Automatic(Digits):
    """Lightning calls backward and step."""

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return self.loss(batch)


def train(run: Run, fault: Fault | None = None, lr: float = 0.05, epochs: int = 6) -> None:
    """Train on digits, with one fault or none."""
    fit = trainer(StabexpCallback(run), fault=fault, epochs=epochs)
    fit.fit(Automatic(lr=lr, fault=fault), loader(fault))
