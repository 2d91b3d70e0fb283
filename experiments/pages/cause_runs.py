"""Trains, bisects and sets right the example of a cause; what was made once is read again."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import stabexp
from experiments.pages.cause_examples import Example
from experiments.pages.following import WentWrong
from stabexp.records import StepRecord, Verdict


@dataclass(frozen=True, kw_only=True)
class Found:
    """What an example showed."""

    cause: str
    example: Example
    root: Path
    """Where its runs are kept."""
    run_id: str
    verdict: Verdict
    records: Sequence[StepRecord]
    fixed: Sequence[StepRecord]
    """The steps of the run that was set right; empty when there is none."""


def find_out(cause: str, example: Example, folder: Path) -> Found:
    """Return what an example shows.

    Args:
        cause: What the verdict has to be.
        example: What is trained.
        folder: Where runs are kept; what is there already is not made again.

    Raises:
        WentWrong: If the verdict is another one, or the run that was set right crashes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    known = folder / "runs.json"
    if not known.exists():
        known.write_text(json.dumps(_made(cause, example, folder)), "utf-8")
    runs = json.loads(known.read_text("utf-8"))
    wrong = stabexp.load(runs["wrong"], root=folder)
    right = stabexp.load(runs["right"], root=folder) if runs["right"] else None
    assert wrong.verdict is not None
    return Found(
        cause=cause,
        example=example,
        root=folder,
        run_id=runs["wrong"],
        verdict=wrong.verdict,
        records=wrong.records,
        fixed=right.records if right else (),
    )


def _made(cause: str, example: Example, folder: Path) -> dict[str, str]:
    started = time.monotonic()
    file = example.experiment(folder)
    run = stabexp.run(file, root=folder, drain_seconds=0)
    if (run.divergence is None) != example.silent:
        raise WentWrong(f"{cause}: {run.run_id} {'diverged' if run.divergence else 'trained'}")
    if example.silent:
        verdict = stabexp.check(run.run_id, root=folder, drain_seconds=0)
    else:
        verdict = stabexp.bisect(run.run_id, root=folder, workers=0, drain_seconds=0)
    print(f"{cause}: {verdict.cause} ({time.monotonic() - started:.0f} s)", flush=True)
    if verdict.cause != cause:
        raise WentWrong(f"{cause}: the verdict is {verdict.cause}: {verdict.summary}")
    if not example.fixed_name:
        return {"wrong": run.run_id, "right": ""}
    settings = list(example.fixed) if isinstance(example.fixed, tuple) else []
    if example.fixed == "verdict":
        settings = [f"{key}={value}" for key, value in verdict.fix.items()]
    right = stabexp.run(
        example.experiment(folder, right=example.fixed == "program"),
        [*settings, "name=right"],
        root=folder,
        drain_seconds=0,
    )
    if right.divergence is not None:
        raise WentWrong(f"{cause}: set right, it diverged: {right.divergence.message}")
    return {"wrong": run.run_id, "right": right.run_id}
