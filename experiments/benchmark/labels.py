"""Writes down what is known of every draw; stabexp never reads the file.

`python -m experiments.benchmark.labels` makes labels.json again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from experiments.benchmark.draws import Draw, all_draws

FILE = Path(__file__).parent / "labels.json"

LISTED = 3
"""Samples named at most; faults of many samples hang on all of them."""


def label(draw: Draw) -> dict[str, Any]:
    """Return what is known of a draw."""
    fault = draw.fault()
    return {
        "cause": draw.cause,
        "also": dict(draw.entry.also),
        "token": draw.token,
        "family": draw.family,
        "held_out": draw.held_out,
        "seed": draw.seed,
        "numbers": [round(number, 4) for number in draw.numbers],
        "strikes": fault.strikes(),
        "samples": list(fault.samples()[:LISTED]),
    }


def text() -> str:
    """Return the labels file: one draw a line."""
    rows = [f"{json.dumps(draw.name)}: {json.dumps(label(draw))}" for draw in all_draws()]
    return "{\n" + ",\n".join(rows) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
    print(f"{FILE}: {len(all_draws())} draws")
