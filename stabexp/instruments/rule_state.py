"""Between two updates nothing but the loop's forward pass changes what the next update depends on.

The weights and the optimizer's moments are digested after every update and again before the next.
What differs was changed by something else: a resume that restored the weights only, a reset, a
damaged memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor

from stabexp.instruments.base import Watched
from stabexp.instruments.rule_base import Finding, Rule
from stabexp.instruments.rule_watch import parameter_names
from stabexp.state.hashing import parameter_digest


class StateChangedBetweenSteps(Rule):
    """The next update starts from the weights and moments that the last one left."""

    slug: ClassVar[str] = "state_changed_between_steps"

    def __init__(self, *, earlier_updates: int | None = None) -> None:
        """`earlier_updates` were applied before the replay, not left out; None: one a step."""
        self._earlier = earlier_updates
        self._step = self._updates = 0
        self._state: dict[int, dict[str, int]] | None = None
        self._weights: dict[int, int] = {}
        self._first = -1
        self._started_empty = False
        self._lost: Finding | None = None
        self._weight_changes: list[tuple[int, list[int]]] = []

    def attach(self, watched: Watched) -> None:
        self._optimizer = watched.optimizer
        self._names = parameter_names(watched.model, watched.optimizer)
        self._parameters = [p for g in watched.optimizer.param_groups for p in g["params"]]
        self._state = self._digest_state() if watched.optimizer.state else None
        self._started_empty = not any((self._state or {}).values())

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        self._step = step
        self._first = step if self._first < 0 else self._first

    def _digest_state(self) -> dict[int, dict[str, int]]:
        return {
            id(parameter): {
                name: int(parameter_digest([value]))
                for name, value in self._optimizer.state[parameter].items()
                if isinstance(value, Tensor) and value.numel()
            }
            for parameter in self._parameters
            if parameter in self._optimizer.state
        }

    def update_begins(self) -> None:
        if self._state is not None:
            self._compare(self._state, self._digest_state())
        if self._weights:
            now = self._digest_weights()
            changed = [key for key, digest in self._weights.items() if now[key] != digest]
            if changed:
                self._weight_changes.append((self._step, changed))

    def _digest_weights(self) -> dict[int, int]:
        return {id(p): int(parameter_digest([p.detach()])) for p in self._parameters}

    def _compare(self, old: dict[int, dict[str, int]], new: dict[int, dict[str, int]]) -> None:
        if self._lost is not None:
            return
        held = [key for key, values in old.items() if values]
        gone = [key for key in held if not new.get(key)]
        other = [key for key in held if key not in gone and new[key] != old[key]]
        if not gone and not other:
            return
        first = (gone or other)[0]
        if gone:
            what = f"the state of {len(gone)} of {len(held)} parameters was gone"
        else:
            names = [n for n, d in old[first].items() if new[first].get(n) != d]
            what = f"{', '.join(names)} of {len(other)} of {len(held)} parameters had other values"
        self._lost = Finding(
            rule=self.slug,
            step=self._step,
            place=f"optimizer state of {self._names[first]}",
            detail=f"{what} when update {self._step} began than when the one before ended",
            remedy="save and restore the optimizer's state with the weights, and change it nowhere "
            "else",
            cure=("optimizer_state", "kept"),
        )

    def update_made(self) -> None:
        self._updates += 1
        self._state = self._digest_state()
        self._weights = self._digest_weights()
        held = sum(bool(values) for values in self._state.values())
        earlier = self._first if self._earlier is None else self._earlier
        if self._updates == 1 and earlier > 0 and self._started_empty and held:
            self._lost = Finding(
                rule=self.slug,
                step=self._first,
                place="optimizer state",
                detail=f"update {self._first} began with no optimizer state at all, although "
                f"{earlier} updates came before it and {held} parameters have some after it",
                remedy="save and restore the optimizer's state with the weights",
                cure=("optimizer_state", "kept"),
            )

    def finding(self) -> Finding | None:
        if self._lost is not None:
            return self._lost
        # A projection after every update is part of the method; a single change is not.
        if not self._weight_changes or 5 * len(self._weight_changes) > self._updates:
            return None
        step, changed = self._weight_changes[0]
        return Finding(
            rule=self.slug,
            step=step,
            place=self._names[changed[0]],
            detail=f"{len(changed)} of {len(self._parameters)} parameters had other values when "
            f"update {step} began than when the one before ended; at {len(self._weight_changes)} "
            f"of {self._updates} updates",
            remedy="look for what writes into the weights outside the optimizer",
            strength="suspicious",
        )


class ScheduleOnWrongClock(Rule):
    """The schedule moves once per update, or once per pass, as its numbers were meant."""

    slug: ClassVar[str] = "schedule_on_wrong_clock"

    def __init__(
        self, *, planned_steps: int | None = None, earlier_rates: Sequence[float] = ()
    ) -> None:
        self._planned = planned_steps
        self._rates = dict(enumerate(earlier_rates))
        self._step = 0
        self._moves: list[int] = []
        self._last: int | None = None
        self._seen = 0

    def attach(self, watched: Watched) -> None:
        self._optimizer = watched.optimizer
        self._scheduler = watched.scheduler
        self._size = watched.dataset_size
        self._last = self._count()

    def _count(self) -> int | None:
        count = getattr(self._scheduler, "_step_count", None)
        if count is None:
            count = getattr(self._scheduler, "last_epoch", None)
        return count if isinstance(count, int) else None

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        self._step = step
        self._seen += len(ids)

    def update_begins(self) -> None:
        self._rates[self._step] = float(self._optimizer.param_groups[0]["lr"])

    def update_ends(self, step: int) -> None:
        now = self._count()
        if now is not None and self._last is not None:
            self._moves.append(now - self._last)
        self._last = now

    def finding(self) -> Finding | None:
        often = [moves for moves in self._moves if moves > 1]
        if len(often) >= 3 and 2 * len(often) > len(self._moves):
            return self._make(
                self._step,
                f"the scheduler was stepped {min(often)} times or more per update, at "
                f"{len(often)} of {len(self._moves)} updates",
                "step the scheduler once per update, after optimizer.step()",
                "certain",
            )
        return self._fallen()

    def _fallen(self) -> Finding | None:
        rates = sorted(self._rates.items())
        if len(rates) < 6 or self._scheduler is None:
            return None
        peak_step, peak = max(rates, key=lambda item: (item[1], -item[0]))
        low = [step for step, rate in rates if step > peak_step and rate < 0.01 * peak]
        steady = low and low[-1] == rates[-1][0] and len(low) >= 5
        stayed = steady and all(rate < 0.01 * peak for step, rate in rates if step >= low[0])
        if not stayed or peak <= 0:
            return None
        per_pass = self._per_pass()
        if self._planned and low[0] <= 0.1 * self._planned:
            when = f"of {self._planned} planned"
        elif per_pass and low[0] < per_pass:
            when = f", within the first pass of {per_pass} steps"
        else:
            return None
        return self._make(
            low[0],
            f"the rate had fallen from {peak:.3g} to {dict(rates)[low[0]]:.3g} by step {low[0]} "
            f"{when} and stayed there: the schedule counts updates where it was meant to count "
            "passes",
            "step the scheduler once per pass, or give it its lengths in updates",
            "certain" if self._planned else "suspicious",
        )

    def _per_pass(self) -> int | None:
        updates = max(1, len(self._moves))
        if not self._size or not self._seen:
            return None
        return int(self._size / (self._seen / updates))

    def _make(self, step: int, detail: str, remedy: str, strength: Any) -> Finding:
        return Finding(
            rule=self.slug,
            step=step,
            place=type(self._scheduler).__name__,
            detail=detail,
            remedy=remedy,
            strength=strength,
            cure=("hold_rate", "on"),
        )
