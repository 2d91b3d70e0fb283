"""The sections of the experiment file, each a typed object that documents its keys."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from stabexp.bisection.budget import Budget
from stabexp.config import (
    Settings,
)
from stabexp.errors import ConfigError
from stabexp.interventions import PrecisionName
from stabexp.notifications.targets import Targets
from stabexp.records import VARIABLES, Cause
from stabexp.tasks.settings import OptimizerSettings, ScheduleSettings

TASK_STEPS = 200
"""How long a task is trained unless told otherwise."""

_NAME = re.compile(r"[\w.\- ]{1,80}$")


def _named(value: Any) -> Any:
    """Let `task: gpt` stand for `task: {name: gpt}`."""
    return {"name": value} if isinstance(value, str) else value


def _listed(value: Any) -> Any:
    """Let `[non_finite, divergence]` stand for `{non_finite: {}, divergence: {}}`."""
    return {str(name): {} for name in value} if isinstance(value, list) else value


def _measured(value: Any) -> Any:
    """Let `standard` stand for what is in that preset, also as one name of several."""
    if not isinstance(value, (str, list, dict)) or value == {"layers": {}}:
        return value
    from stabexp.monitors.presets import expanded  # imports torch

    return expanded(value)


def _readable_name(value: str) -> str:
    if not _NAME.match(value):
        raise ValueError(
            f"expected up to 80 letters, digits, '.', '-', '_' or spaces; got {value!r}"
        )
    return value


Plugins = Annotated[dict[str, dict[str, Any] | None], BeforeValidator(_listed)]
"""Plug-in name → its arguments."""


_BESIDE = ("bisect", "tracking", "on_divergence", "on_event")
"""Sections that say what is done about a training, and nothing about its course."""


class TaskSettings(Settings):
    """What to train: a built-in task or a class of your own."""

    name: str
    """A built-in (`stabexp list tasks`), `path/to/file.py:Class` or `package.module:Class`."""

    args: dict[str, Any] = Field({})
    """Arguments of the task."""


class TrainSettings(Settings):
    """A training function of your own, which takes a `stabexp.Run`."""

    name: str
    """`path/to/file.py:function` or `package.module:function`."""

    args: dict[str, Any] = Field({})
    """Keyword arguments passed after the run."""


class BatchSettings(Settings):
    """How many samples make one update."""

    size: int = Field(32, ge=1)
    """Samples per micro-batch."""

    accumulate: int = Field(1, ge=1)
    """Micro-batches per update; the loss is divided by it."""

    workers: int = Field(0, ge=0, le=64)
    """Processes that prepare batches ahead; 0 prepares them in the training process."""


class CheckpointSettings(Settings):
    """When to save the full state, and how many states to keep."""

    every: int = Field(50, ge=1)
    """Steps between checkpoints. Step 0 and the last good one are always kept."""

    keep: int = Field(3, ge=1)
    """How many of the newest to keep."""


class BisectSettings(Settings):
    """How to look for the cause."""

    variables: list[Literal["learning_rate", "warmup", "clip_norm", "precision", "batch_size"]] = (
        Field(list(VARIABLES))  # type: ignore[arg-type]
    )
    """Which variables to change, one at a time."""

    budget: int | str | None = None
    """Most steps to replay (2000) or time to take (30m, 1h); when it runs out, what is still
    possible is ranked and no cause is named. Null: no limit."""

    workers: int = Field(2, ge=0, le=256)
    """Worker processes that run trials side by side; 0 replays in the calling process."""

    seeds: int = Field(0, ge=0, le=10)
    """In how many further orders of the data a cure is tried again before it is believed."""

    show_samples: bool = True
    """Whether what samples at fault hold (image, text, numbers) goes into the report, the run's
    directory and MLflow. False keeps private data out of all of them."""

    @field_validator("budget")
    @classmethod
    def _spendable(cls, value: int | str | None) -> int | str | None:
        try:
            Budget.parse(value, option="budget")
        except ConfigError as error:
            raise ValueError(str(error).removeprefix("budget ")) from None
        return value


class TrackingSettings(Settings):
    """Where the results go."""

    uri: str | None = None
    """MLflow tracking URI; null takes MLFLOW_TRACKING_URI, else a local store in stabexp_runs/."""

    experiment: str = "stabexp"
    """MLflow experiment."""

    upload: bool = True
    """False keeps a run and its bisects in their directory; `stabexp sync RUN_ID` sends one."""


class Experiment(Settings):
    """One training and how to watch it."""

    name: Annotated[str, AfterValidator(_readable_name)]
    """What to call runs of this experiment."""

    description: str = ""
    """What the experiment shows, for people."""

    expect: Literal[Cause, "healthy"] | None = None
    """The verdict this experiment is known to deserve; only tests and benchmarks read it."""

    seed: int = Field(0, ge=0)
    """Decides initialisation, data order and every random draw."""

    steps: int | None = Field(None, ge=1)
    """Optimizer updates in all. Null: 200 with `task`; with `train` as long as the function goes
    on."""

    device: str = "cpu"
    """"cpu", "cuda", "cuda:1", "mps"."""

    deterministic: bool = True
    """Use deterministic algorithms only; without it a replay may not reproduce the run."""

    threads: int | None = Field(None, ge=1)
    """torch threads on the CPU; null leaves torch's choice. Replays use the same number."""

    task: Annotated[TaskSettings, BeforeValidator(_named)] | None = None
    """What to train. Give either this or `train`."""

    train: Annotated[TrainSettings, BeforeValidator(_named)] | None = None
    """A training function of your own. Give either this or `task`."""

    optimizer: OptimizerSettings | None = None
    """Required with `task`; a `train` function builds its own."""

    schedule: Annotated[ScheduleSettings, BeforeValidator(_named)] = ScheduleSettings()
    """Learning rate over the steps."""

    clip: float | None = Field(None, gt=0)
    """Largest total gradient norm (L2, after unscaling); null does not clip."""

    precision: PrecisionName = "fp32"
    """Number format."""

    batch: BatchSettings = BatchSettings()
    """Samples per update."""

    checkpoint: CheckpointSettings = CheckpointSettings()
    """Saving the full state."""

    monitors: Annotated[Plugins, BeforeValidator(_measured)] = Field({"layers": {}})
    """What to measure besides the standard figures: light, standard or full, or name → arguments;
    `stabexp list monitors` has what each costs."""

    detectors: Plugins = Field({})
    """When the run counts as diverged: name → arguments. Empty takes the default set."""

    on_divergence: Literal["stop", "bisect", "recover"] = "stop"
    """What to do when it diverged: nothing more, find out why, or go on from the last good
    checkpoint with what cures (then also when memory runs out)."""

    on_event: Targets = Field([])
    """Who is told of what: entries of `on`, and a `command` or a `webhook` (docs/events.md)."""

    interventions: dict[str, float | int | str] = Field({})
    """Variable → dose, in force for the whole run; how a fix is applied to a `train` function."""

    stabilisers: Plugins = Field({})
    """What keeps the training stable while it runs: name → arguments (`stabexp list
    stabilisers`)."""

    bisect: BisectSettings = BisectSettings()
    """Looking for the cause."""

    tracking: TrackingSettings = TrackingSettings()
    """Where results go."""

    @model_validator(mode="before")
    @classmethod
    def _task_length(cls, values: Any) -> Any:
        """A task's loop has no end of its own."""
        if isinstance(values, dict) and values.get("task") and values.get("steps") is None:
            return {**values, "steps": TASK_STEPS}
        return values

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.task is None and self.train is None:
            raise ValueError("task: is missing; add it, or train: with a function of your own")
        if self.task is not None and self.train is not None:
            raise ValueError("train: is given beside task; remove one of the two")
        if self.task is not None and self.optimizer is None:
            raise ValueError(
                "optimizer: is missing; a task needs one, for example {name: adamw, lr: 1e-3}"
            )
        if self.train is not None and self.optimizer is not None:
            raise ValueError(
                "optimizer: a train function builds its own optimizer; remove this section"
            )
        if self.steps is not None and self.schedule.warmup_steps >= self.steps:
            raise ValueError(
                f"schedule.warmup_steps: {self.schedule.warmup_steps} is not below steps "
                f"({self.steps}), so the full learning rate would never be reached"
            )
        return self

    def digest(self) -> str:
        """Return a sha256 over every setting that decides the training's course."""
        kept = self.model_dump(
            mode="json",
            exclude={
                "name",
                "description",
                "expect",
                "bisect",
                "tracking",
                "on_divergence",
                "on_event",
            },
        )
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
