"""One fault: a clean run, the same with the fault, its recovery, and how the two ends compare."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import stabexp
from experiments.recovery.programs import BATCH, STEPS
from stabexp.records import RunResult
from stabexp.tracking import RunDirectory, find_run, list_runs, read_steps

HERE = Path(__file__).parent
PROGRAM = f"{HERE / 'programs.py'}:train"
LAST = 60
"""Steps at the end whose mean loss is compared."""
CLOSE = 0.02
"""How far above the clean run's end a recovered one may lie."""

REMEDIES: dict[str, tuple[str, ...]] = {
    "rate_spike": ("hold_rate",),
    "rate_too_high": ("lower_rate",),
    "bad_batch": ("replace_samples",),
    "nan_sample": ("replace_samples",),
    "label_burst": ("replace_samples",),
    "bit_flip_weight": ("plain_resume",),
    "bit_flip_moment": ("plain_resume",),
    "optimizer_state_lost": ("keep_optimizer_state",),
    "fp16_overflow": ("wider_format",),
    "unclipped_bursts": ("clip_gradients",),
    "log_of_zero": ("safe_operation",),
    "out_of_memory": ("smaller_micro_batch",),
    "killed": ("plain_resume",),
    "torn_checkpoint": ("plain_resume",),
}
"""Fault → what is right to do about it; known because the fault was put there."""

CLEAN: dict[str, Mapping[str, Any]] = {
    "bit_flip_moment": {"fault": "clean_bit_flip_moment"},
    "optimizer_state_lost": {"fault": "clean_optimizer_state_lost"},
    "log_of_zero": {"fault": "clean_log_of_zero"},
    "unclipped_bursts": {"fault": "clean_unclipped_bursts", "clip": 3.0},
}
"""Arguments of the clean run, where it is not the plain one."""

DEFAULTS: dict[str, Mapping[str, Any]] = {"fp16_overflow": {"precision": "fp16_unscaled"}}
"""Settings of a fault's runs, the clean one too."""


class HarmlessError(Exception):
    """The fault did not end the run, so there is nothing to recover from."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """What became of one fault on one seed."""

    fault: str
    seed: int
    status: str
    remedies: tuple[str, ...]
    right: bool
    """Whether the last remedy, which counts, is the right one."""
    rollbacks: int
    clean_loss: float
    loss: float
    replayed: int
    seconds: float

    @property
    def excess(self) -> float:
        """How far above the clean run's end, as a share of it."""
        return self.loss / self.clean_loss - 1

    @property
    def came_back(self) -> bool:
        """Whether it ended as if nothing had happened."""
        return self.status == "recovered" and self.excess <= CLOSE


def train(
    fault: str, seed: int, root: Path, args: Mapping[str, Any] | None = None, **settings: Any
) -> RunResult:
    """Train the program with a fault, or with the arguments of a clean run."""
    struck = str(root / f"struck-{fault}-{seed}")
    return stabexp.run(
        PROGRAM,
        root=root,
        args=dict(args) if args is not None else {"fault": fault, "once": struck},
        seed=seed,
        steps=STEPS,
        threads=1,
        batch={"size": BATCH},
        checkpoint={"every": 10, "keep": 4},
        tracking={"upload": False},
        drain_seconds=0.0,
        **DEFAULTS.get(fault, {}),
        **settings,
    )


def train_padded(seed: int, root: Path, steps: int = STEPS, **settings: Any) -> RunResult:
    """Train the task whose longest batch needs much memory."""
    file = root / "padded.yaml"
    file.write_text(
        f"name: padded\nseed: {seed}\nsteps: {steps}\nthreads: 1\n"
        f'task: {{name: "experiments.recovery.padded:Padded", args: {{seed: {seed}}}}}\n'
        "optimizer: {name: sgd, lr: 0.1, momentum: 0.9}\n"
        f"batch: {{size: {BATCH}}}\ncheckpoint: {{every: 10}}\ntracking: {{upload: false}}\n",
        "utf-8",
    )
    return stabexp.run(file, root=root, drain_seconds=0.0, **settings)


def clean(kind: str, seed: int, root: Path) -> bool:
    """Train a clean run that would recover by itself, and return whether anything was done."""
    torch.set_num_threads(1)
    result = train(kind, seed, root, CLEAN.get(kind, {}), on_divergence="recover")
    return result.recovery is not None or result.divergence is not None


def work(job: dict[str, Any]) -> dict[str, Any]:
    """Do one job in a place of its own; an error is a result."""
    with tempfile.TemporaryDirectory(prefix="recovery-") as place:
        root = Path(place)
        try:
            if job["what"] == "clean":
                return {**job, "acted": clean(job["fault"], job["seed"], root)}
            row = one(job["fault"], job["seed"], root, by_verdict=job["what"] == "verdict")
            return {**job, "row": asdict(row)}
        except HarmlessError:
            return {**job, "harmless": True}
        except Exception:
            return {**job, "error": traceback.format_exc()}


def facts(result: RunResult) -> dict[str, Any]:
    """Return what another process has to know of a run, JSON-ready."""
    assert result.recovery is not None
    return {"run_id": result.run_id, "recovered": result.recovery.status}


def one(fault: str, seed: int, root: Path, *, by_verdict: bool) -> Row:
    """Inject a fault, recover from it, and compare with the clean run."""
    torch.set_num_threads(1)
    root.mkdir(parents=True, exist_ok=True)
    if fault == "out_of_memory":
        clean = train_padded(seed, root)
    else:
        clean = train(fault, seed, root, CLEAN.get(fault, {}))
    assert clean.status == "finished", (fault, seed, clean.divergence)
    started = time.monotonic()
    crashed = _crashed(fault, seed, root)
    done = stabexp.recover(
        crashed, root=root, without_verdict=not by_verdict, workers=0, drain_seconds=0.0
    )
    remedies = tuple(action.remedy for action in done.actions)
    return Row(
        fault=fault,
        seed=seed,
        status=done.status,
        remedies=remedies,
        right=bool(remedies) and _named(done, remedies[-1]) in REMEDIES[fault],
        rollbacks=done.rollbacks,
        clean_loss=end_loss(RunDirectory.open(clean.directory)),
        loss=end_loss(find_run(done.final_run, root)),
        replayed=done.replayed_steps,
        seconds=time.monotonic() - started,
    )


def _named(done: Any, remedy: str) -> str:
    """Return a remedy's name; a verdict's fix has that of what it changes."""
    if remedy != "verdict_fix":
        return remedy
    (action,) = done.actions[-1:]
    names = {
        "learning_rate": "lower_rate",
        "clip_norm": "clip_gradients",
        "replace_samples": "replace_samples",
        "optimizer_state": "keep_optimizer_state",
        "safe_operation": "safe_operation",
        "precision": "wider_format",
        "weight_decay": "no_weight_decay",
        "cap": "hold_rate",
        "clip": "clip_gradients",
    }
    keys = {key.rpartition(".")[2] for key in action.settings}
    return next((name for key, name in names.items() if key in keys), "verdict_fix")


def _crashed(fault: str, seed: int, root: Path) -> str:
    """Return the id of a run that the fault ended."""
    if fault in ("killed", "torn_checkpoint", "out_of_memory"):
        known = {run.run_id for run in list_runs(root)}
        command = [sys.executable, "-m", "experiments.recovery.alone", fault, str(seed), str(root)]
        ended = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=HERE.parents[1]
        )
        new = [run for run in list_runs(root) if run.run_id not in known]
        if fault == "out_of_memory":
            found = json.loads(ended.stdout.splitlines()[-1])
            return str(found["run_id"])
        assert ended.returncode < 0, (ended.returncode, ended.stderr[-2000:])
        (crashed,) = new
        if fault == "torn_checkpoint":
            newest = max((crashed.path / "checkpoints").glob("*.pt"))
            os.truncate(newest, newest.stat().st_size // 2)
        return crashed.run_id
    result = train(fault, seed, root)
    if result.divergence is None:
        raise HarmlessError(f"{fault}, seed {seed}: the fault did no harm")
    return result.run_id


def end_loss(run: RunDirectory) -> float:
    """Return the mean loss of the last steps."""
    losses = [record.loss for record in read_steps(run.path / "steps.jsonl")][-LAST:]
    return sum(losses) / len(losses)
