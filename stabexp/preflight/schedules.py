"""The learning rate is looked at over the whole run, though only a few updates are made.

After the last update of the dry run nothing is trained any more, so its scheduler can be stepped on
to the planned end. What it would have done there is seen without reading how it was written: a
warm-up longer than the run, a schedule that is over too early or counts updates where passes were
meant, a rate that stays zero.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, ClassVar

from stabexp.instruments.base import Watched
from stabexp.instruments.rule_base import Finding, Rule

LONGEST = 100_000
"""Updates up to which the scheduler is stepped on; a step of it takes microseconds."""
SHORTEST = 20
"""Planned updates from which on a schedule has a course."""


class RateOverTheRun(Rule):
    """The rate rises soon, is used, and falls at the end."""

    slug: ClassVar[str] = "schedule_on_wrong_clock"

    def __init__(self, planned: Callable[[], tuple[int, int] | None]) -> None:
        """`planned` returns how many updates the training makes, and how many in one pass."""
        self._planned = planned
        self._step = 0
        self.rates: list[float] = []
        """Rate of every update: those that were made, then those that would be."""
        self._made = 0
        self._moves: list[int] = []
        self._last: int | None = None
        self._ended: tuple[int, str] | None = None

    def attach(self, watched: Watched) -> None:
        self._optimizer = watched.optimizer
        self._scheduler = watched.scheduler
        self._last = self._count()

    def _count(self) -> int | None:
        count = getattr(self._scheduler, "_step_count", None)
        return count if isinstance(count, int) else None

    def _rate(self) -> float:
        return max(float(group["lr"]) for group in self._optimizer.param_groups)

    def update_begins(self) -> None:
        self.rates.append(self._rate())

    def update_ends(self, step: int) -> None:
        now = self._count()
        if now is not None and self._last is not None:
            self._moves.append(now - self._last)
        self._last = now

    def detach(self) -> None:
        self._made = len(self.rates)
        plan = self._planned()
        if plan is None or self._made < 2 or not SHORTEST <= plan[0] <= LONGEST:
            return
        total, per_pass = plan
        often = int(median(self._moves)) if self._moves else 0
        if self._scheduler is None or self._last is None or not self._steps_alone():
            self.rates += [self.rates[-1]] * (total - self._made)
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for step in range(self._made, total):
                self.rates.append(self._rate())
                due = often if often else int((step + 1) % max(per_pass, 1) == 0)
                try:
                    for _ in range(due):
                        self._scheduler.step()
                except ValueError as error:  # OneCycleLR, past its end
                    self._ended = (step, str(error).split(".")[0])
                    return

    def _steps_alone(self) -> bool:
        """Whether the schedule is a function of its own count: not of a validation loss."""
        return hasattr(self._scheduler, "last_epoch") and not hasattr(self._scheduler, "patience")

    def finding(self) -> Finding | None:
        rates, plan = self.rates, self._planned()
        if len(rates) >= 3 and max(rates) < 1e-12:
            return self._make(
                "rate_stays_zero",
                0,
                f"the learning rate is {max(rates):.3g} at {self._made} updates"
                + (
                    f" and would be at all {len(rates)} of the run"
                    if len(rates) > self._made
                    else ""
                ),
                "set the rate, and see that the schedule's factor is not 0 (an integer division?)",
                certain=True,
            )
        if self._ended is not None:
            step, says = self._ended
            return self._make(
                "schedule_ends_early",
                step,
                f"at update {step} of {plan[0] if plan else '?'} the schedule raises: {says}",
                "give it the number of updates of the whole training: passes times batches, "
                "divided "
                "by the micro-batches of an update",
                certain=True,
            )
        if plan is None or len(rates) < SHORTEST or len(rates) == self._made:
            return None
        often = [moves for moves in self._moves if moves > 1]
        if len(often) >= 3 and 2 * len(often) > len(self._moves):
            return self._make(
                self.slug,
                0,
                f"the scheduler is stepped {min(often)} times per update",
                "step the scheduler once per update, after optimizer.step()",
                certain=True,
            )
        return self._rising() or self._over() or self._returning()

    def _rising(self) -> Finding | None:
        rates = self.rates
        peak = max(rates)
        top = rates.index(peak)
        rises = all(b >= a * (1 - 1e-9) for a, b in pairwise(rates[: top + 1]))
        if not rises or top < 0.6 * len(rates) or peak < 2 * max(rates[0], 1e-30):
            return None
        at = "at the last update" if top >= len(rates) - 2 else f"at update {top}"
        return self._make(
            "warmup_too_long",
            top,
            f"the rate rises from {rates[0]:.3g} and reaches its highest, {peak:.3g}, {at} of "
            f"{len(rates)}",
            "warm up over 1 to 10 % of the run; give the schedule its lengths in updates, and "
            "step it "
            "once per update",
        )

    def _over(self) -> Finding | None:
        rates = self.rates
        peak = max(rates)
        top = rates.index(peak)
        gone = (
            next(
                (step for step in range(len(rates) - 1, top, -1) if rates[step] >= 1e-3 * peak),
                top,
            )
            + 1
        )
        if gone > 0.7 * len(rates):
            return None
        name = self.slug if gone <= 0.2 * len(rates) else "schedule_ends_early"
        return self._make(
            name,
            gone,
            f"the rate falls from {peak:.3g} to {rates[gone]:.3g} by update {gone} of "
            f"{len(rates)} and "
            "stays there",
            "give the schedule its lengths in updates, or step it once per pass if they are passes",
        )

    def _returning(self) -> Finding | None:
        if type(self._scheduler).__name__ != "CosineAnnealingLR":
            return None
        rates = self.rates
        low = [
            step
            for step in range(1, len(rates) - 1)
            if rates[step - 1] > rates[step] <= rates[step + 1]
        ]
        if not low:
            return None
        return self._make(
            self.slug,
            low[0],
            f"a half cosine of T_max = {self._scheduler.T_max} falls to {rates[low[0]]:.3g} at "
            "update "
            f"{low[0]} and then rises again, {len(low)} times in {len(rates)} updates",
            "set T_max to the number of updates, or step the schedule once per pass",
        )

    def _make(
        self, name: str, step: int, detail: str, remedy: str, *, certain: bool = False
    ) -> Finding:
        return Finding(
            rule=name,
            step=min(step, self._made),
            place=type(self._scheduler).__name__ if self._scheduler is not None else "optimizer",
            detail=detail,
            remedy=remedy,
            strength="certain" if certain else "suspicious",
        )


class ScheduleAfterUpdate(Rule):
    """The scheduler is stepped after the optimizer, so that the first rate is used."""

    slug: ClassVar[str] = "schedule_before_update"

    def __init__(self) -> None:
        self._step = 0
        self._at_begin: int | None = None
        self._early: list[int] = []
        self._updates = 0

    def attach(self, watched: Watched) -> None:
        self._scheduler = watched.scheduler

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        self._step = step
        self._at_begin = getattr(self._scheduler, "_step_count", None)

    def update_begins(self) -> None:
        self._updates += 1
        now = getattr(self._scheduler, "_step_count", None)
        if isinstance(now, int) and self._at_begin is not None and now > self._at_begin:
            self._early.append(self._step)

    def finding(self) -> Finding | None:
        if len(self._early) < max(3, 0.8 * self._updates):
            return None
        return Finding(
            rule=self.slug,
            step=self._early[0],
            place=type(self._scheduler).__name__,
            detail=f"scheduler.step() came before optimizer.step() at {len(self._early)} of "
            f"{self._updates} updates, so the first rate of the schedule is never used",
            remedy="call scheduler.step() after optimizer.step()",
        )
