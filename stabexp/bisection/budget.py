"""How much a bisect may spend: replayed steps, or time on the clock."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from stabexp.errors import ConfigError

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_STEPS = re.compile(r"(\d+)(?:\s*steps?)?")
_TIME = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most a bisect may spend; with neither limit it may go on until it knows."""

    steps: int | None = None
    """Replayed steps, over all trials."""
    seconds: float | None = None
    """Wall time of the bisect, over all its starts."""

    @classmethod
    def parse(cls, text: str | int | None, *, option: str = "--budget") -> Self:
        """Return the budget in "2000" (steps), "90s", "30m", "1h" or "1h30m"; None has no limit.

        Raises:
            ConfigError: If it is none of these, or nothing could be done with it.
        """
        if text is None:
            return cls()
        typed = str(text).strip().lower()
        if count := _STEPS.fullmatch(typed):
            budget = cls(steps=int(count[1]))
        elif typed and (parts := _TIME.fullmatch(typed.replace(" ", ""))):
            amounts = zip(parts.groups(), (_UNITS["h"], _UNITS["m"], _UNITS["s"]), strict=True)
            budget = cls(seconds=sum(float(amount or 0) * unit for amount, unit in amounts))
        else:
            raise ConfigError(
                f"{option} {text}: expected steps to replay or a time, for example 2000, 90s, 30m "
                "or 1h"
            )
        if not (budget.steps or budget.seconds):
            raise ConfigError(f"{option} {text}: allows no replay at all; give at least 1 or 1s")
        return budget

    def spent(self, replayed_steps: int, seconds: float) -> bool:
        """Return whether no further replay may begin.

        Args:
            replayed_steps: Steps replayed so far, over all trials.
            seconds: Wall time since the bisect began, the time it was interrupted left out.
        """
        return (self.steps is not None and replayed_steps >= self.steps) or (
            self.seconds is not None and seconds >= self.seconds
        )

    def left(self, replayed_steps: int, seconds: float) -> tuple[int | None, float | None]:
        """Return the steps and the seconds that are left; None where there is no such limit."""
        return (
            None if self.steps is None else max(0, self.steps - replayed_steps),
            None if self.seconds is None else max(0.0, self.seconds - seconds),
        )

    def __str__(self) -> str:
        """Return it as people type it: "2000 steps", "1h30m", "no limit"."""
        if self.steps is not None:
            return f"{self.steps} steps"
        if self.seconds is None:
            return "no limit"
        left, shown = self.seconds, ""
        for unit in ("h", "m"):
            whole, left = divmod(left, _UNITS[unit])
            shown += f"{whole:.0f}{unit}" if whole else ""
        return shown + (f"{left:g}s" if left or not shown else "")
