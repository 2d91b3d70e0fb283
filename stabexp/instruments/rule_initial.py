"""Before anything is learned, a classifier guesses: its first loss is about ln C."""

from __future__ import annotations

import math
from typing import ClassVar

from torch import Tensor

from stabexp.instruments.base import Watched
from stabexp.instruments.rule_base import Call, Finding, Rule, place

FACTOR, MORE = 2.5, 1.0
"""First loss above 2.5 ln C + 1: far worse than guessing, so the initial outputs are wild."""

TOO_WIDE = 3.0
"""Deviation of a weight over the usual one above which it explains such a loss."""


class InitialLoss(Rule):
    """The first loss of a training that starts at step 0 is not far above that of guessing."""

    slug: ClassVar[str] = "initial_loss"
    watches: ClassVar[frozenset[str]] = frozenset({"cross_entropy"})

    def __init__(self) -> None:
        self._step = -1
        self._widest = ""
        self._deviation = 0.0
        self._found: Finding | None = None

    def attach(self, watched: Watched) -> None:
        for name, parameter in watched.model.named_parameters():
            if parameter.dim() < 2 or parameter.numel() < 2:
                continue
            deviation = float(parameter.detach().double().std())
            usual = parameter[0].numel() ** -0.5
            if math.isfinite(deviation) and deviation / usual > self._deviation:
                self._widest, self._deviation = name, deviation / usual

    def batch_begins(self, step: int, ids: object, batch: object) -> None:
        self._step = step

    def called(self, call: Call) -> None:
        logits, loss = call.argument(0, "input"), call.result
        if self._step != 0 or self._found or not isinstance(logits, Tensor):
            return
        if not isinstance(loss, Tensor) or loss.numel() != 1 or logits.dim() < 2:
            return
        classes = logits.shape[1]
        if classes < 2 or call.kwargs.get("weight") is not None:
            return
        mean = call.kwargs.get("reduction", "mean") == "mean"
        first, guess = float(loss.detach()), math.log(classes)
        if not mean or not first > FACTOR * guess + MORE:
            return
        seen = (
            f"the first loss is {first:.4g} where guessing among {classes} classes scores "
            f"{guess:.4g}; the logits reach {float(logits.detach().abs().amax()):.4g}"
        )
        if self._deviation > TOO_WIDE:
            self._found = Finding(
                rule=self.slug,
                step=0,
                place=self._widest,
                detail=f"{seen}, and {self._widest} is {self._deviation:.3g} times as wide as its "
                "size asks for",
                remedy="initialise this parameter with a smaller deviation (0.02 for an embedding "
                "that is also the output matrix)",
            )
            return
        self._found = Finding(
            rule=self.slug,
            step=0,
            place=place(),
            detail=f"{seen}, though no weight matrix is wider than usual",
            remedy="look at the scale of the inputs, of the vectors and of what layers add up to",
            strength="suspicious",
        )

    def finding(self) -> Finding | None:
        return self._found
