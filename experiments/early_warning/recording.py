"""Every program is trained once; its steps are kept, so that rules are tried in seconds."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from experiments.early_warning.programs import Draw, draws, records_of
from stabexp.records import StepRecord, from_json, to_json

WORK = Path(tempfile.gettempdir()) / "stabexp-early-warning"
"""Where step logs are kept."""


def record(draw: Draw, work: Path = WORK) -> str:
    """Train a program unless its steps are there; return its name."""
    path = work / draw.half / f"{draw.name}.jsonl"
    if not path.exists():
        import torch

        torch.set_num_threads(1)
        lines = []
        for step in records_of(draw):
            row = to_json(step)
            row["sample_ids"] = []
            lines.append(json.dumps(row) + "\n")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".part").write_text("".join(lines), "utf-8")
        path.with_suffix(".part").rename(path)
    return draw.name


def steps_of(draw: Draw, work: Path = WORK) -> list[StepRecord]:
    """Return the steps of a recorded program."""
    lines = (work / draw.half / f"{draw.name}.jsonl").read_text("utf-8").splitlines()
    return [from_json(StepRecord, json.loads(line)) for line in lines]


def record_all(halves: Iterable[str], *, workers: int) -> None:
    """Record every program of the halves, several at a time."""
    wanted = [draw for half in halves for draw in draws(half)]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for count, name in enumerate(pool.map(record, wanted), start=1):
            print(f"{count}/{len(wanted)} {name}", flush=True)
