"""The optimizer's memory is lost or corrupted in the middle of a run."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from experiments.benchmark.faults.base import Fault, Moment, backward, step


class StateDamaged(Fault):
    """Just before the update of step `at`, the optimizer's state is overwritten."""

    needs_loop = True

    def __init__(self, *, at: int, damage: Callable[[dict[str, Tensor]], None]) -> None:
        self.at = at
        self.damage = damage

    @torch.no_grad()
    def _strike(self, moment: Moment) -> None:
        for state in moment.optimizer.state.values():
            self.damage(state)

    def update(self, moment: Moment) -> None:
        backward(moment)
        if moment.index % moment.accumulate:
            return
        if moment.run.step == self.at:
            self._strike(moment)
        step(moment)
        moment.optimizer.zero_grad(set_to_none=True)

    def strikes(self) -> int | None:
        return self.at


def second_moment_lost(state: dict[str, Tensor]) -> None:
    """Adam: what was restored holds the first moment only, and the step count."""
    state["exp_avg_sq"].zero_()


def first_moment_scaled(by: float) -> Callable[[dict[str, Tensor]], None]:
    """Adam or SGD: the running mean of the gradient comes back in another unit."""

    def damage(state: dict[str, Tensor]) -> None:
        for name in ("exp_avg", "momentum_buffer"):
            if isinstance(state.get(name), Tensor):
                state[name].mul_(by)

    return damage
