"""Which runs are on the board: those at work, and those that ended a little while ago.

A run that is not served any more is gone from the next scrape, and Prometheus marks its series as
stale: it does not go on for ever as a straight line.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from stabexp.boards.metrics import LAYERS_SHOWN
from stabexp.boards.run_view import RunView
from stabexp.errors import ConfigError

RUNS_SHOWN = 50
"""Runs that are served at once, at most."""

KEEP_SECONDS = 3600.0
"""How long a run stays after the last thing that was written about it."""

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to serve."""

    root: Path
    runs: Literal["active", "all"] | tuple[str, ...] = "active"
    """Those at work or that ended within `keep_seconds`; all; or these, by the beginnings of their
    ids."""
    keep_seconds: float = KEEP_SECONDS
    most_runs: int = RUNS_SHOWN
    """The newest are served where there are more."""
    layers: int = LAYERS_SHOWN
    patterns: tuple[str, ...] = ()
    """Shell patterns of the layers to show; empty for all."""


@dataclass
class ShownRuns:
    """The runs below a root that are served, each followed where it stands."""

    wanted: Wanted
    now: Callable[[], float] = time.time
    left_out: int = 0
    """Runs that would be served but for the limit."""
    _known: dict[str, RunView] = field(default_factory=dict)

    def refresh(self) -> list[RunView]:
        """Return the runs to serve with what is new about them, the oldest first."""
        names = self._names()
        self._known = {name: view for name, view in self._known.items() if name in names}
        chosen: list[tuple[float, str, RunView]] = []
        for name in names:
            if not self._asked_for(name):
                continue
            view = self._known.get(name) or self._made(name)
            self._known[name] = view
            view.refresh_state()
            if self.wanted.runs == "active" and not self._is_active(view):
                view.let_go()
                continue
            created = view.directory.created if view.directory is not None else 0.0
            chosen.append((created, name, view))
        chosen.sort(key=lambda each: each[:2])
        most = self.wanted.most_runs
        self.left_out = max(0, len(chosen) - most)
        served = [view for _, _, view in chosen[self.left_out :]]
        for view in served:
            view.refresh()
        return served

    def _names(self) -> set[str]:
        try:
            found = os.scandir(self.wanted.root / "runs")
        except OSError:
            return set()
        with found:
            return {each.name for each in found if os.path.exists(f"{each.path}/run.json")}

    def _asked_for(self, name: str) -> bool:
        runs = self.wanted.runs
        return isinstance(runs, str) or any(name.startswith(begin) for begin in runs)

    def _is_active(self, view: RunView) -> bool:
        return view.at_work or self.now() - view.active_since < self.wanted.keep_seconds

    def _made(self, name: str) -> RunView:
        return RunView(
            self.wanted.root / "runs" / name,
            layers=self.wanted.layers,
            patterns=self.wanted.patterns,
        )


def spelled_runs(text: str) -> Literal["active", "all"] | tuple[str, ...]:
    """Return which runs an option names.

    Raises:
        ConfigError: If it names none.
    """
    if text == "active":
        return "active"
    if text == "all":
        return "all"
    begins = tuple(part.strip() for part in text.split(",") if part.strip())
    if not begins:
        raise ConfigError("--runs: names no run; take active, all, or the beginning of a run id")
    return begins


def spelled_seconds(text: str) -> float:
    """Return the seconds that "90s", "30m", "2h" or "7d" mean.

    Raises:
        ConfigError: If it is none of these.
    """
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"--keep {text}: expected a time, for example 90s, 30m, 2h or 7d")
    return float(found[1]) * _UNITS[found[2]]
