"""A run in MLflow, logged by anybody: its curves, and what its parameters say of the settings.

Runs that stabexp itself recorded are known by a tag. MLflow has only their finite numbers, and a
count of what was not finite at the steps where something was not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stabexp.diagnosis.log import Keep, Log, Series
from stabexp.diagnosis.names import normal
from stabexp.diagnosis.numbers import number
from stabexp.errors import ConfigError, RunNotFoundError

OURS = "stabexp.run_id"
NONFINITE = "nonfinite"
"""Metric of our own runs: how many things of a step were not finite."""

LR = ("learning_rate", "lr", "optimizer_lr")
WARMUP = ("warmup_steps", "schedule_warmup_steps", "num_warmup_steps", "lr_warmup_steps")
CLIP = ("max_grad_norm", "gradient_clip_val", "clip_norm", "grad_clip", "clip")
DECAY = ("weight_decay", "optimizer_weight_decay")
BATCH = ("batch_size", "train_batch_size", "per_device_train_batch_size", "batch_size_size")
ACCUMULATE = ("gradient_accumulation_steps", "accumulate_grad_batches", "batch_accumulate")


def read_mlflow_run(run_id: str, tracking_uri: str, keep: Keep) -> Log:
    """Return the curves of a run in an MLflow store.

    Raises:
        RunNotFoundError: If the store has no such run.
        TrackingError: If the store cannot be read.
        ConfigError: If the URI names a database file that does not exist, or is no URI.
    """
    file = tracking_uri.removeprefix("sqlite:///").partition("?")[0]
    if tracking_uri.startswith("sqlite:///") and not Path(file).exists():
        raise ConfigError(f"--tracking-uri {tracking_uri}: there is no such file")
    from stabexp.tracking.mlflow_store import MlflowStore
    from stabexp.tracking.store import RefusedError, VanishedError

    try:
        run = MlflowStore(tracking_uri).read_run(run_id, lambda n: n == NONFINITE or keep(n))
    except VanishedError as error:
        raise RunNotFoundError(
            f"run {run_id}: not found in {tracking_uri}; name another store with --tracking-uri"
        ) from error
    except RefusedError as error:
        raise RunNotFoundError(f"run {run_id}: {error}") from error
    series: dict[str, Series] = {}
    for name, points in run.curves.items():
        for step, value in points:
            series.setdefault(name, Series()).add(step, value)
    warnings = []
    ours = run.tags.get(OURS)
    if ours is not None:
        warnings.append(
            f"stabexp recorded this run as {ours}; MLflow has only its finite numbers, and not "
            "every step of a long run. Where it was recorded, `stabexp diagnose` sees everything"
        )
        _mark(series)
    return Log(
        format="MLflow run",
        series={name: curve for name, curve in series.items() if name != NONFINITE},
        others=run.others,
        warnings=warnings,
        settings=settings_of(run.params),
        recorded_by=ours,
    )


def _mark(series: Mapping[str, Series]) -> None:
    """Put NaN where our own run has a step without a loss and something that was not finite."""
    for name in ("loss", "grad_norm"):
        if name in series and NONFINITE in series:
            there = set(series[name].steps)
            for step in series[NONFINITE].steps:
                if step not in there:
                    series[name].add(step, math.nan)


def settings_of(params: Mapping[str, str]) -> dict[str, Any]:
    """Return what a run's parameters say, as `detectors.opinion` takes it.

    The names are those of Hugging Face's TrainingArguments, Lightning's Trainer and stabexp. What
    is not there, or not a number, is left out.
    """
    spelled = {normal(name): value for name, value in params.items()}

    def first(names: tuple[str, ...]) -> float | None:
        found = (number(spelled[name]) for name in names if name in spelled)
        return next((value for value in found if value is not None and math.isfinite(value)), None)

    settings: dict[str, Any] = {}
    if (lr := first(LR)) is not None:
        settings["lr"] = lr
    warmup, ratio = first(WARMUP), first(("warmup_ratio",))
    if warmup is not None:
        settings["warmup_steps"] = max(warmup, 1 if ratio else 0)
    if (clip := first(CLIP)) is not None:
        settings["clip_norm"] = clip or None
    elif any(spelled.get(name, "").lower() == "none" for name in CLIP):
        settings["clip_norm"] = None
    if (decay := first(DECAY)) is not None:
        settings["weight_decay"] = decay
    if (batch := first(BATCH)) is not None:
        settings["batch_size"] = int(batch * (first(ACCUMULATE) or 1))
    if (precision := _precision(spelled)) is not None:
        settings["precision"] = precision
    return settings


def _precision(spelled: Mapping[str, str]) -> str | None:
    for flag in ("fp16", "bf16"):
        if spelled.get(flag, "").lower() == "true":
            return flag
    if spelled.get("fp16", "").lower() == "false" and spelled.get("bf16", "").lower() == "false":
        return "fp32"
    named = spelled.get("precision") or spelled.get("mixed_precision")
    return (
        {"16": "fp16", "16-mixed": "fp16", "32": "fp32", "no": "fp32"}.get(named, named)
        if named
        else None
    )
