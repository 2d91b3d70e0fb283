"""Whether a measure taken at the warning keeps a program's loss from leaving."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from experiments.early_warning.programs import Draw, records_of
from experiments.early_warning.recording import WORK
from stabexp.prediction import crossing

MEASURES = ("lower_rate", "clip")
EACH = 3
"""Programs of a class that are trained again with each measure."""


def kept(draw: Draw, measure: str, work: Path = WORK) -> int | None:
    """Return where the loss left with the measure in force, None when it never did."""
    path = work / draw.half / "measures" / f"{draw.name}-{measure}.json"
    if not path.exists():
        records = records_of(draw, stabilisers={"early_warning": {"measure": measure}})
        left = crossing([record.loss for record in records], since=draw.build().begins or 0)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(left), "utf-8")
    left = json.loads(path.read_text("utf-8"))
    return None if left is None else int(left)


def saves(draws: Sequence[tuple[Draw, int]], measure: str) -> tuple[int, int, list[int]]:
    """Return how many programs were saved, of how many, and the steps the others won.

    Args:
        draws: Programs that were warned of, and where their loss left without a measure.
        measure: The measure's name.
    """
    ends = [(kept(draw, measure), left) for draw, left in draws[:EACH]]
    won = [end - left for end, left in ends if end is not None]
    return sum(end is None for end, _ in ends), len(ends), won
