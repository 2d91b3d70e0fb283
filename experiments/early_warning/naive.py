"""Two rules as they are found in trainers, to compare with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from stabexp.prediction.forecasting import QUIET
from stabexp.records import StepRecord


def gradient_above_five_medians(records: Sequence[StepRecord]) -> bool:
    """The gradient's norm is more than five times its median over a hundred steps."""
    before = [r.grad_norm for r in records[-101:-1] if r.grad_norm - r.grad_norm == 0]
    return len(before) >= 20 and not records[-1].grad_norm <= 5 * median(before)


def loss_rises_over_ten_steps(records: Sequence[StepRecord]) -> bool:
    """The mean of five losses is a tenth above that of the five before them."""
    losses = [record.loss for record in records[-10:]]
    return len(records) >= 20 and not sum(losses[5:]) <= 1.1 * sum(losses[:5])


NAIVE: Mapping[str, Callable[[Sequence[StepRecord]], bool]] = {
    "gradient norm > 5 medians": gradient_above_five_medians,
    "loss up 10 % over 10 steps": loss_rises_over_ten_steps,
}


def alarms(
    rule: Callable[[Sequence[StepRecord]], bool], records: Sequence[StepRecord]
) -> list[int]:
    """Return the steps of a rule's alarms, told apart as warnings are."""
    found: list[int] = []
    last = -QUIET - 1
    for index in range(len(records)):
        if rule(records[max(0, index - 100) : index + 1]):
            if index - last > QUIET:
                found.append(index)
            last = index
    return found
