"""A snapshot holds everything that decides the next step, and puts it back bit for bit.

Model, optimizer, schedule, loss scale, the random streams and the position in the data: leave one
out and a replay differs within a step or two. A snapshot owns its memory: training on, or restoring
it twice, does not change it. Everything is checked before anything is changed.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from stabexp.errors import CheckpointError, NotReplayableError
from stabexp.state.module_state import (
    capture_module,
    check_module,
    restore_module,
    uncompiled,
)
from stabexp.state.optimizer_state import capture_optimizer, check_optimizer, restore_optimizer
from stabexp.state.plain_values import Memo, from_plain, leaves, to_plain
from stabexp.state.random_streams import (
    Stream,
    capture_streams,
    check_streams,
    restore_streams,
    set_stream_state,
    stream_state,
)

_STREAMS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)


@runtime_checkable
class Stateful(Protocol):
    """Anything that can say what it remembers, and be told."""

    def state_dict(self) -> Any:
        """Return the state, as nested dicts and lists of tensors, numbers and text."""

    def load_state_dict(self, state_dict: Any, /) -> Any:
        """Put back what `state_dict` returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The world just before a step, in tensors on the CPU and plain values."""

    objects: Mapping[str, Mapping[str, Any] | None]
    """Name → kind ("module", "optimizer", "stream" or "object") and state; None where none was."""
    streams: Mapping[str, Any]
    """Where the global random streams stood."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Position in the data, step, and whatever else the loop needs, as plain values."""

    @property
    def finite(self) -> bool:
        """Whether every parameter and buffer of every module is finite."""
        return all(
            bool(torch.isfinite(leaf).all())
            for saved in self.objects.values()
            if saved is not None and saved["kind"] == "module"
            for part in ("state", "buffers")
            for _, leaf in leaves(saved["value"][part])
            if isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex())
        )

    def to_payload(self) -> dict[str, Any]:
        """Return what goes into a file: tensors and plain values only."""
        return {"objects": self.objects, "streams": self.streams, "extra": self.extra}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Snapshot:
        """Return the snapshot that `to_payload` wrote."""
        return cls(objects=payload["objects"], streams=payload["streams"], extra=payload["extra"])


def capture(
    objects: Mapping[str, Stateful | Stream | None],
    *,
    extra: Mapping[str, Any] | None = None,
    gradients: bool = True,
) -> Snapshot:
    """Return a copy of all that decides the next step; the objects are left as they are.

    Args:
        objects: By name: "model", "optimizer", "scheduler", "scaler", further ones. Also random
            generators of one's own (`torch.Generator`, NumPy's, `random.Random`).
        extra: Plain values to keep with it.
        gradients: Whether gradients that are there now are state. They are when a loop does not
            clear them at the start of a step; a loop known to do so can save the memory.

    Raises:
        NotReplayableError: If something cannot be captured exactly; it names the key path.
    """
    memo: Memo = {}
    names = {id(parameter): name for name, parameter in _named_parameters(objects).items()}
    saved = {
        name: None if thing is None else _capture(thing, name, memo, gradients, names)
        for name, thing in objects.items()
    }
    kept = to_plain(dict(extra or {}), where="extra", memo=memo)
    return Snapshot(objects=saved, streams=capture_streams(), extra=kept)


def _named_parameters(objects: Mapping[str, Any]) -> dict[str, nn.Parameter]:
    """Return the parameters of all modules by "model.head.weight"."""
    return {
        f"{name}.{path}": parameter
        for name, thing in objects.items()
        if isinstance(thing, nn.Module)
        for path, parameter in uncompiled(thing).named_parameters()
    }


def _capture(
    thing: Any, name: str, memo: Memo, gradients: bool, names: Mapping[int, str]
) -> dict[str, Any]:
    if isinstance(thing, nn.Module):
        value: Any = capture_module(thing, where=name, memo=memo, gradients=gradients)
        return {"kind": "module", "value": value}
    if isinstance(thing, Optimizer):
        value = capture_optimizer(thing, where=name, memo=memo, names=names)
        return {"kind": "optimizer", "value": value}
    if isinstance(thing, _STREAMS):
        return {"kind": "stream", "value": stream_state(thing)}
    if not isinstance(thing, Stateful):
        raise NotReplayableError(
            f"{name}: a {type(thing).__name__} has no state_dict() and load_state_dict(); "
            "add both, so that a replay can put it back"
        )
    return {"kind": "object", "value": to_plain(thing.state_dict(), where=name, memo=memo)}


def restore(
    snapshot: Snapshot,
    objects: Mapping[str, Stateful | Stream | None],
    *,
    optional: Collection[str] = (),
) -> None:
    """Put the world back to where it was captured; the snapshot stays as it is.

    Args:
        snapshot: What `capture` returned, or a checkpoint.
        objects: The same names with objects of the same structure, on any device, of any dtype.
        optional: Names that may be there on one side only, such as "scaler" when a trial changes
            the precision; they are then left alone.

    Raises:
        CheckpointError: If the snapshot does not fit; nothing has been changed then.
        NotReplayableError: If it has modules that are made while the training runs; the same.
    """
    pairs = _pairs(snapshot, objects, optional)
    named = _named_parameters(objects)
    for name, thing, saved in pairs:
        _check(name, thing, saved, named)
    check_streams(snapshot.streams)
    for name, thing, saved in pairs:
        try:
            _restore(thing, saved, named)
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{name}: {type(thing).__name__}.load_state_dict refused the checkpoint: "
                f"{error}. Build it as the run did: same code, same configuration"
            ) from error
    restore_streams(snapshot.streams)  # last: loading may draw numbers


def _pairs(
    snapshot: Snapshot, objects: Mapping[str, Any], optional: Collection[str]
) -> list[tuple[str, Any, Mapping[str, Any]]]:
    pairs = []
    for name in dict.fromkeys((*snapshot.objects, *objects)):
        saved, thing = snapshot.objects.get(name), objects.get(name)
        then, now = _is_there(saved, thing), _is_on(thing)
        if then != now and name not in optional:
            raise CheckpointError(
                f"{name}: is in the checkpoint but not here; register it as the run did"
                if then
                else f"{name}: is here but not in the checkpoint; leave it out, or start from a "
                "checkpoint that was made with it"
            )
        if then and now and saved is not None:
            pairs.append((name, thing, saved))
    return pairs


def _is_there(saved: Mapping[str, Any] | None, thing: Any) -> bool:
    if saved is None:
        return False
    empty = saved["kind"] == "object" and saved["value"] == {}
    # A disabled scaler has an empty state; other objects may, and be there all the same.
    return not (empty and (thing is None or isinstance(thing, GradScaler)))


def _is_on(thing: Any) -> bool:
    # A disabled scaler does nothing and has no state: the same as none.
    return thing is not None and not (isinstance(thing, GradScaler) and not thing.is_enabled())


def _kind(thing: Any) -> str:
    if isinstance(thing, nn.Module):
        return "module"
    if isinstance(thing, Optimizer):
        return "optimizer"
    return "stream" if isinstance(thing, _STREAMS) else "object"


def _check(
    name: str, thing: Any, saved: Mapping[str, Any], named: Mapping[str, nn.Parameter]
) -> None:
    if _kind(thing) != saved["kind"]:
        raise CheckpointError(
            f"{name}: is a {saved['kind']} in the checkpoint, a {_kind(thing)} here; "
            "register the same object under this name as the run did"
        )
    if isinstance(thing, nn.Module):
        check_module(thing, saved["value"], where=name)
    elif isinstance(thing, Optimizer):
        check_optimizer(thing, saved["value"], where=name, named=named)


def _restore(thing: Any, saved: Mapping[str, Any], named: Mapping[str, nn.Parameter]) -> None:
    if isinstance(thing, nn.Module):
        restore_module(thing, saved["value"])
    elif isinstance(thing, Optimizer):
        restore_optimizer(thing, saved["value"], named=named)
    elif isinstance(thing, _STREAMS):
        set_stream_state(thing, saved["value"])
    else:
        thing.load_state_dict(from_plain(saved["value"]))
