"""What a loop trains with, by name: one model or several, one optimizer or several, and the rest.

Wrappers that a framework puts around an optimizer or a schedule are taken off: updates happen in
the innermost one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from stabexp.errors import NotReplayableError
from stabexp.state.snapshot import Stateful

KNOWN = ("model", "optimizer", "scheduler", "scaler")


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The objects of a training that decide its next step."""

    model: nn.Module
    optimizers: tuple[torch.optim.Optimizer, ...]
    """The most important first."""
    scaler: torch.amp.GradScaler | None
    scheduler: Any
    objects: Mapping[str, Stateful | None]
    """All of them by name, as snapshots hold them."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Those beyond the model, the first optimizer, its schedule and the scaler."""


def parts_of(
    *,
    model: Any,
    optimizer: Any,
    scheduler: Any = None,
    scaler: torch.amp.GradScaler | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Parts:
    """Name the parts of a training.

    Args:
        model: A module, or several by name or in a row.
        optimizer: An optimizer, or several by name or in a row.
        scheduler: A schedule, or several; None for none.
        scaler: The gradient scaler.
        extra: Anything else with a state_dict, by name.

    Raises:
        NotReplayableError: If an optimizer cannot be replayed exactly, or a name is taken.
    """
    models = _named("model", model)
    for name, each in models.items():
        if not isinstance(each, nn.Module):
            raise NotReplayableError(
                f"run.steps: {name} is a {type(each).__name__}, not a torch.nn.Module"
            )
    wrapped = _named("optimizer", optimizer)
    if not {"accelerator", "trainer"} & set(extra or {}):
        for name, each in wrapped.items():
            _check_accelerate(name, each)
    scaler = scaler or next(filter(None, map(_scaler_of, wrapped.values())), None)
    optimizers = {name: innermost(each) for name, each in wrapped.items()}
    for name, each in optimizers.items():
        _check_optimizer(name, each)
    schedulers = {name: _unwrapped(each) for name, each in _named("scheduler", scheduler).items()}
    beyond = dict(extra or {})
    taken = sorted(beyond.keys() & {*KNOWN, *optimizers, *schedulers})
    if taken:
        raise NotReplayableError(
            f"run.steps: extra[{taken[0]!r}] has the name of a part; give it another name"
        )
    whole = next(iter(models.values()))
    if len(models) > 1:
        whole = nn.ModuleDict({name.partition(".")[2]: each for name, each in models.items()})
    objects: dict[str, Any] = {"model": whole, "optimizer": None, "scheduler": None}
    if len(optimizers) > 1:
        del objects["optimizer"]
    objects |= optimizers
    objects |= schedulers
    objects |= {"scaler": scaler, **beyond}
    first = next(iter(optimizers.values()))
    return Parts(
        model=whole,
        optimizers=tuple(optimizers.values()),
        scaler=scaler,
        scheduler=next(iter(schedulers.values()), None),
        objects=objects,
        extra={
            name: thing
            for name, thing in objects.items()
            if thing is not None
            and thing is not whole
            and thing is not first
            and name not in ("scaler", *list(schedulers)[:1])
        },
    )


def innermost(optimizer: Any) -> Any:
    """Return the optimizer that a framework's wrapper steps, or the optimizer itself."""
    while isinstance(getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = optimizer.optimizer
    return optimizer


def _scaler_of(optimizer: Any) -> torch.amp.GradScaler | None:
    """Return the scaler that Accelerate's wrapper steps an optimizer with."""
    inner = getattr(optimizer, "optimizer", None)
    scaler = getattr(optimizer, "scaler", None) if inner is not None else None
    return scaler if isinstance(scaler, torch.amp.GradScaler) else None


def _check_accelerate(name: str, optimizer: Any) -> None:
    kind = type(optimizer)
    if kind.__name__ == "AcceleratedOptimizer" and kind.__module__.startswith("accelerate."):
        raise NotReplayableError(
            f"run.steps: {name} was prepared by Accelerate, which counts the batches itself to "
            "know when to update; pass extra=accelerated(accelerator), from "
            "stabexp.integrations.accelerate"
        )


def _unwrapped(scheduler: Any) -> Any:
    inner = getattr(scheduler, "scheduler", None)  # Accelerate's
    return inner if inner is not None and hasattr(inner, "state_dict") else scheduler


def _named(kind: str, value: Any) -> dict[str, Any]:
    """Return {"model": …} for one, {"model.a": …, "model.b": …} for several."""
    if isinstance(value, Mapping):
        items = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, Sequence) and not isinstance(value, nn.Module):
        items = [(str(index), item) for index, item in enumerate(value)]
    else:
        return {} if value is None else {kind: value}
    if len(items) == 1:
        return {kind: items[0][1]}
    return {f"{kind}.{key}": item for key, item in items if item is not None}


def _check_optimizer(name: str, optimizer: Any) -> None:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise NotReplayableError(
            f"run.steps: {name} is a {type(optimizer).__name__}, not a torch optimizer; pass the "
            "torch.optim.Optimizer that makes the updates"
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise NotReplayableError(
            f"run.steps: {name} is an LBFGS, which evaluates the loss several times inside one "
            "update, so a step cannot be watched or changed; use an optimizer that is stepped "
            "without a closure"
        )
