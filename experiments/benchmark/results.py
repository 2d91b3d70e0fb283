"""What a draw came to: one JSON file each, so that a killed benchmark goes on where it was."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from stabexp.records import FAMILIES

HEALTHY = "healthy"
BLAMELESS = frozenset({HEALTHY, "marginal", "not_reproduced", "inconclusive"})
"""Answers that blame nothing."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """What the full ladders of the five classic variables did, each dose replayed once."""

    cures: tuple[str, ...]
    """Variables of which some dose cured."""
    replays: int
    steps: int


@dataclass(frozen=True, kw_only=True)
class Result:
    """One draw, run and bisected."""

    name: str
    entry: str
    family: str
    cause: str
    """The known cause."""
    also: tuple[str, ...] = ()
    """Other causes that count as right."""
    spare: bool = False
    held_out: bool = False
    onset: int | None = None
    """None when the run did not diverge."""
    detected: int | None = None
    strikes: int | None = None
    """Step at which the fault first acted; None when there is no such step."""
    orders_survived: int | None = None
    """Of four other orders of the same data, how many train through; asked of marginal draws."""
    run_steps: int = 0
    found: str = HEALTHY
    """The verdict's cause, "healthy" when nothing diverged, "error" when the bisect failed."""
    found_samples: tuple[int, ...] = ()
    samples: tuple[int, ...] = ()
    confidence: float = 0.0
    telemetry: str = ""
    """What the step records alone suggest."""
    cures: tuple[str, ...] = ()
    replays: int = 0
    replayed_steps: int = 0
    summary: str = ""
    trials: tuple[Mapping[str, Any], ...] = ()
    grid: Grid | None = None
    error: str = ""
    seconds: float = 0.0
    verdict: Mapping[str, Any] = field(default_factory=dict)

    @property
    def diverged(self) -> bool:
        """Whether the run diverged at all."""
        return self.detected is not None

    @property
    def right(self) -> bool:
        """Whether the verdict is the known cause, or one that counts as such."""
        return self.found in {self.cause, *self.also}

    @property
    def family_right(self) -> bool:
        """Whether the verdict lies in the known cause's family."""
        wanted = {FAMILIES.get(cause, cause) for cause in (self.cause, *self.also)}
        return FAMILIES.get(self.found, self.found) in wanted

    @property
    def wrongly_blamed(self) -> bool:
        """Whether something was blamed where nothing may be."""
        return (
            self.spare
            and self.found != "error"
            and not self.right
            and (self.found not in BLAMELESS)
        )


def write_result(result: Result, folder: Path) -> None:
    """Write a result so that a kill leaves either all of it or nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{result.name}.json"
    part = file.with_suffix(f".part{os.getpid()}")
    part.write_text(json.dumps(asdict(result), indent=1), "utf-8")
    part.replace(file)


def read_results(folder: Path) -> list[Result]:
    """Return every finished draw's result, by name."""
    return [_from_json(json.loads(f.read_text("utf-8"))) for f in sorted(folder.glob("*.json"))]


def _from_json(values: Mapping[str, Any]) -> Result:
    lists: Iterable[str] = ("also", "found_samples", "samples", "cures", "trials")
    plain = dict(values) | {name: tuple(values[name]) for name in lists}
    grid = values["grid"]
    if grid is not None:
        plain["grid"] = Grid(**dict(grid) | {"cures": tuple(grid["cures"])})
    return Result(**plain)
