"""A new run that begins with the state and the records of an earlier one at one of its steps.

It has the earlier run's records up to there and that one checkpoint, so it can be resumed, replayed
and bisected like any other run, from its fork point on. What is to be different about the state
itself, such as an optimizer that remembers nothing, is written into that checkpoint: so it happened
once, however often the run is resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from stabexp.errors import CheckpointError
from stabexp.state.checkpoints import CheckpointStore
from stabexp.state.snapshot import Snapshot
from stabexp.tracking.run_directory import RunDirectory

FORK = "fork.json"
"""In a run directory: which run it goes on from, and at which step."""


def fork_step(directory: RunDirectory) -> int:
    """Return the step at which a run begins: its fork point, 0 for any other run."""
    if not (directory.path / FORK).exists():
        return 0
    return int(directory.read_json(FORK)["step"] or 0)


def fork_into(
    child: RunDirectory, parent: RunDirectory, step: int, *, empty_optimizer: bool = False
) -> None:
    """Give a new run the state and the records of another just before `step`.

    Done again after a kill it ends in the same.

    Raises:
        CheckpointError: If that checkpoint is damaged, or holds a number that is not finite.
    """
    source = CheckpointStore.reader(parent.path / "checkpoints")
    snapshot = source.load(step)
    if not snapshot.finite:
        raise CheckpointError(
            f"{source.directory}: the checkpoint of step {step} holds NaN or Inf; "
            "go on from an earlier one"
        )
    if empty_optimizer:
        snapshot = without_moments(snapshot)
    with CheckpointStore(child.directory("checkpoints"), first=step) as own:
        if all(info.step != step for info in own.infos()):
            own.save(step, snapshot, finite=True)
    child.rewind(0)
    for record in parent.read_steps():
        if record.step < step:
            child.log_step(record)


def without_moments(snapshot: Snapshot) -> Snapshot:
    """Return the state with optimizers that remember nothing, as if they had made no update."""
    objects = {
        name: {**saved, "value": _emptied(saved["value"])}
        if saved is not None and saved["kind"] == "optimizer"
        else saved
        for name, saved in snapshot.objects.items()
    }
    return replace(snapshot, objects=objects)


def _emptied(value: Mapping[str, Any]) -> dict[str, Any]:
    state = value["state"]
    return {**value, "state": {**state, "state": _zeroed(state["state"])}}


def _zeroed(value: Any) -> Any:
    if isinstance(value, Tensor):
        return torch.zeros_like(value)
    if isinstance(value, Mapping):
        return {key: _zeroed(item) for key, item in value.items()}
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return type(value)(0)
