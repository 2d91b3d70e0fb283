"""Run directories written by hand, with the same code that a training writes them with."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from stabexp.records import Divergence, Evidence, StepRecord, Verdict, to_json
from stabexp.tracking import RunDirectory

DIVERGENCE = Divergence(
    detector="divergence",
    detected=7,
    onset=5,
    pattern="sudden_jump",
    value=9.0,
    limit=3.0,
    message="the loss left its floor of 2.1",
)


def step(number: int, **known: Any) -> StepRecord:
    """Return a step like any other."""
    usual: dict[str, Any] = {
        "time": time.time(),
        "loss": 2.0,
        "lr": 0.1,
        "grad_norm": 1.0,
        "update_ratio": 1e-3,
        "param_norm": 10.0,
        "batch_size": 8,
        "position": 8 * number,
        "seconds": 0.5,
    }
    return StepRecord(step=number, **{**usual, **known})


def made_run(
    root: Path,
    run_id: str = "run-1",
    *,
    steps: Iterable[StepRecord] = (),
    events: Iterable[Mapping[str, Any]] = (),
    status: str | None = None,
    diverged: bool = False,
    params: Mapping[str, Any] | None = None,
) -> RunDirectory:
    """Write a run down; without a status it is still recorded, by this process."""
    directory = RunDirectory.create(
        root / "runs" / run_id,
        run_id=run_id,
        kind="run",
        name=run_id,
        experiment="stabexp",
        tracking_uri="http://127.0.0.1:9",
        params={"steps": 100, **(params or {})},
    )
    for record in steps:
        directory.log_step(record)
    for event in events:
        directory.log_event(event)
    if diverged:
        directory.write_json("divergence.json", to_json(DIVERGENCE))
    if status is not None:
        directory.finish(status)
    return directory


def verdict_of(directory: RunDirectory, bisect_id: str = "", **known: Any) -> Verdict:
    """Return a verdict on a run."""
    usual: dict[str, Any] = {
        "run_id": directory.run_id,
        "bisect_id": bisect_id or f"{directory.run_id}.bisect-1",
        "cause": "learning_rate",
        "confidence": 0.91,
        "summary": "the rate is too high",
        "path": (Evidence(node="control", question="?", answer="yes", detail="it did"),),
        "fix": {"optimizer.lr": 0.01},
        "fix_proved": True,
        "divergence": DIVERGENCE,
        "good_step": 0,
        "next_command": "stabexp run exp.yaml -o optimizer.lr=0.01",
    }
    return Verdict(**{**usual, **known})


def bisected(directory: RunDirectory, number: int = 1, **known: Any) -> RunDirectory:
    """Write a finished bisect with one trial and a verdict below a run."""
    bisect = RunDirectory.create(
        directory.path / "bisects" / f"bisect-{number}",
        run_id=f"{directory.run_id}.bisect-{number}",
        kind="bisect",
        name="bisect",
        parent_path=directory.path,
        experiment="stabexp",
        tracking_uri="http://127.0.0.1:9",
    )
    RunDirectory.create(
        bisect.path / "trials" / "00",
        run_id=f"{bisect.run_id}.00",
        kind="trial",
        name="trial",
        parent_path=bisect.path,
        experiment="stabexp",
        tracking_uri="http://127.0.0.1:9",
    )
    bisect.write_json("verdict.json", to_json(verdict_of(directory, bisect.run_id, **known)))
    bisect.finish("FINISHED")
    return bisect


def everything(root: Path, run_id: str = "half-1") -> RunDirectory:
    """Write a run that has a number for every metric."""
    layers = {
        "encoder": {
            "grad_norm": 1.0,
            "weight_norm": 5.0,
            "update_ratio": 2e-3,
            "activation_zeros": 0.5,
            "activation_rms": 0.7,
            "grad_zeros": 0.1,
        }
    }
    records = [
        step(
            number,
            time=time.time() - 10 + number,
            loss_scale=1024.0,
            skipped=number == 3,
            layers=layers,
            metrics={"loss/slope": 0.01, "loss/second_derivative": 0.001, "moments/age": 3.0},
        )
        for number in range(10)
    ]
    directory = made_run(
        root,
        run_id,
        steps=records,
        events=[
            {"step": 4, "by": "monitors", "alarm": "gradient explodes", "message": "norm 70"},
            {
                "step": 5,
                "by": "early_warning",
                "what": "warning",
                "kind": "rate_ramp",
                "message": "soon",
            },
            {"step": 6, "by": "skip_nonfinite", "message": "left out"},
        ],
        status="FAILED",
        diverged=True,
        params={"task.name": "mlp", "optimizer.name": "sgd", "precision": "fp16", "device": "cpu"},
    )
    bisected(directory)
    directory.write_json(
        "recovery.json",
        {
            "run_id": run_id,
            "status": "gave_up",
            "incident": "diverged",
            "what": "it diverged at step 7",
            "summary": "nothing helped",
        },
    )
    return directory
