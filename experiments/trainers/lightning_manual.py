"""The module steps its optimizer itself: Lightning's manual optimization."""

from __future__ import annotations

from torch import Tensor

from experiments.trainers.lightning_digits import VERDICTS, Digits, Fault, loader, trainer
from stabexp import Run
from stabexp.integrations.lightning import StabexpCallback

__all__ = ["VERDICTS", "train"]


class Manual(Digits):
    """The module calls backward, step and the schedule."""

    automatic_optimization = False

    def training_step(self, batch: list[Tensor], batch_idx: int) -> None:
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self.loss(batch))
        optimizer.step()
        self.lr_schedulers().step()


def train(run: Run, fault: Fault | None = None, lr: float = 0.05, epochs: int = 6) -> None:
    """Train on digits, with one fault or none."""
    fit = trainer(StabexpCallback(run), fault=fault, epochs=epochs)
    fit.fit(Manual(lr=lr, fault=fault), loader(fault))
