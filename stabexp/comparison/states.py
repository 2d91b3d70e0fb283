"""Two saved states of the same step, tensor by tensor: what differs, and by how much."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from stabexp.comparison.result import CheckpointDifference, StateDifference
from stabexp.errors import CheckpointError
from stabexp.state.checkpoints import CheckpointStore
from stabexp.state.plain_values import leaves
from stabexp.state.snapshot import Snapshot

_Kind = Literal["parameter", "buffer", "gradient", "optimizer", "other"]
_ORDER: tuple[_Kind, ...] = ("parameter", "buffer", "optimizer", "gradient", "other")


def common_checkpoints(first: Path, second: Path) -> tuple[tuple[int, bool], ...]:
    """Return the steps both runs kept the state of, each with whether the states are equal.

    Args:
        first: Directory of the first run's checkpoints.
        second: That of the second run.
    """
    hashes = {info.step: info.state_hash for info in CheckpointStore.reader(first).infos()}
    return tuple(
        (info.step, hashes[info.step] == info.state_hash)
        for info in CheckpointStore.reader(second).infos()
        if info.step in hashes
    )


def first_differing_checkpoint(first: Path, second: Path) -> CheckpointDifference | None:
    """Return what the first common checkpoint with unequal states differs in; None without one.

    A pair of which one is damaged is passed over.
    """
    one, other = CheckpointStore.reader(first), CheckpointStore.reader(second)
    for step, equal in common_checkpoints(first, second):
        if equal:
            continue
        try:
            pair = one.load(step), other.load(step)
        except CheckpointError:
            continue
        if found := state_differences(*pair):
            return CheckpointDifference(step=step, differences=found)
    return None


def state_differences(first: Snapshot, second: Snapshot) -> tuple[StateDifference, ...]:
    """Return everything in which two states differ: parameters first, in the model's order."""
    one, other = dict(_named(first)), dict(_named(second))
    found = []
    for name in dict.fromkeys((*one, *other)):
        kind = (one.get(name) or other[name])[0]
        if name not in one or name not in other:
            where = "first" if name in one else "second"
            found.append(StateDifference(name=name, kind=kind, detail=f"only in the {where}"))
        elif (difference := _compared(name, kind, one[name][1], other[name][1])) is not None:
            found.append(difference)
    return tuple(sorted(found, key=lambda item: _ORDER.index(item.kind)))


_Part = tuple[str, tuple[_Kind, Any]]
"""Dotted name, what it is, and the tensor or plain value."""


def _named(snapshot: Snapshot) -> Iterator[_Part]:
    """Yield every tensor and value of a state with its dotted name and what it is."""
    parameters = _parameter_names(snapshot)
    for name, saved in snapshot.objects.items():
        if saved is None:
            continue
        if saved["kind"] == "module":
            yield from _module_parts(name, saved["value"])
        elif saved["kind"] == "optimizer":
            yield from _optimizer_parts(name, saved["value"]["state"], parameters)
        else:
            yield from _parts("other", saved["value"], name)
    yield from _parts("other", snapshot.streams, "streams")
    yield from _parts("other", snapshot.extra, "extra")


def _parts(kind: _Kind, value: Any, *path: str) -> Iterator[_Part]:
    for place, leaf in leaves(value, path):
        yield ".".join(place), (kind, leaf)


def _module_parts(name: str, value: Mapping[str, Any]) -> Iterator[_Part]:
    for key, tensor in value["state"].items():
        yield from _parts(
            "parameter" if key in value["requires_grad"] else "buffer", tensor, name, key
        )
    yield from _parts("buffer", value["buffers"], name)
    yield from _parts("gradient", value.get("gradients", {}), name, "grad")
    for part in ("requires_grad", "training"):
        yield from _parts("other", value[part], name, part)


def _optimizer_parts(
    name: str, value: Mapping[str, Any], parameters: Mapping[tuple[str, int], str]
) -> Iterator[_Part]:
    for index, state in value["state"].items():
        parameter = parameters.get((name, index), f"parameter {index}")
        yield from _parts("optimizer", state, name, parameter)
    yield from _parts("optimizer", value["param_groups"], name, "groups")


def _parameter_names(snapshot: Snapshot) -> dict[tuple[str, int], str]:
    """Return (optimizer, index) → the parameter's name, where counts and shapes tell it."""
    names: dict[tuple[str, int], str] = {}
    modules = [s["value"] for s in snapshot.objects.values() if s and s["kind"] == "module"]
    if not modules:
        return names
    state: Mapping[str, Any] = modules[0]["state"]
    trained = [
        (key, tuple(state[key].shape)) for key in modules[0]["requires_grad"] if key in state
    ]
    for name, saved in snapshot.objects.items():
        if saved is None or saved["kind"] != "optimizer":
            continue
        shapes = [tuple(shape) for shape in saved["value"]["shapes"]]
        if shapes == [shape for _, shape in trained]:
            names |= {(name, index): key for index, (key, _) in enumerate(trained)}
    return names


def _compared(name: str, kind: _Kind, a: Any, b: Any) -> StateDifference | None:
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        if repr(a) == repr(b):
            return None
        return StateDifference(name=name, kind=kind, detail=f"{_short(a)} and {_short(b)}")
    if a.shape != b.shape or a.dtype != b.dtype:
        forms = " and ".join(f"{t.dtype}{tuple(t.shape)}" for t in (a, b)).replace("torch.", "")
        return StateDifference(name=name, kind=kind, detail=forms)
    bits = [t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b)]
    if torch.equal(bits[0], bits[1]):
        return None
    wrong = (bits[0] != bits[1]).view(-1, a.element_size()).any(dim=1)
    wide = torch.complex128 if a.is_complex() else torch.float64
    one, other = (t.reshape(-1).to(wide) for t in (a, b))
    gap = (one - other)[wrong].abs()
    norm = float(torch.linalg.vector_norm(one))
    meaning = kind != "other"  # the bytes of a random stream have no size
    return StateDifference(
        name=name,
        kind=kind,
        largest=float(gap.max()) if meaning else float("nan"),
        relative=float(torch.linalg.vector_norm(gap)) / norm if meaning and norm else float("nan"),
        elements=int(wrong.sum()),
        of=a.numel(),
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
