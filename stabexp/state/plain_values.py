"""State is copied into tensors and plain values, the only things that load without running code.

`torch.load(weights_only=True)` refuses NumPy arrays, deques and objects of one's own classes. What
has an exact plain form gets a tagged dict here; for the rest the error names the key.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from stabexp.errors import NotReplayableError

_VALUES = (type(None), bool, int, float, complex, str, torch.dtype, torch.device, torch.Size)
_DICTS = (dict, OrderedDict, Counter)
_NUMPY = "$numpy"
_DEQUE = "$deque"
_SPARSE = "$sparse"
_BYTES = "$bytes"
_TAGS = {_NUMPY, _DEQUE, _SPARSE, _BYTES}
_MAX_DEPTH = 200

Memo = dict[tuple[Any, ...], tuple[Tensor, Tensor]]
"""Copies made so far, by the memory they were made from, so that tied tensors are copied once.

The source is kept beside its copy: were it freed, the next one could get the same address.
"""


def to_plain(value: Any, *, where: str, memo: Memo | None = None) -> Any:
    """Return a deep copy of nested state, with every tensor on the CPU in storage of its own.

    Args:
        value: Dicts, lists, tuples, sets, tensors, numbers, text, NumPy arrays, deques.
        where: Name of the value, for messages: "scheduler".
        memo: Shared between calls, keeps tensors that share memory as one copy.

    Raises:
        NotReplayableError: If something has no plain form; it names the key path.
    """
    return _plain(value, where, {} if memo is None else memo, 0)


def _plain(value: Any, where: str, memo: Memo, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise NotReplayableError(
            f"{where[:120]}…: nested more than {_MAX_DEPTH} deep, so it may contain itself; "
            "leave it out of state_dict()"
        )
    if isinstance(value, Tensor):
        return _tensor(value, where, memo)
    kind = type(value)
    if kind in _VALUES or (kind is set and all(type(v) in _VALUES for v in value)):
        return copy(value)
    if kind is bytes:
        return {_BYTES: _raw(value)}
    if kind in _DICTS:
        plain = {
            _key(key, where): _plain(item, f"{where}[{key!r}]", memo, depth + 1)
            for key, item in value.items()
        }
        return kind(plain)
    if kind in (list, tuple, deque):
        items = [_plain(v, f"{where}[{i}]", memo, depth + 1) for i, v in enumerate(value)]
        return {_DEQUE: items, "maxlen": value.maxlen} if kind is deque else kind(items)
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
        return _numpy(value)
    raise NotReplayableError(
        f"{where}: a {kind.__module__}.{kind.__qualname__} cannot be saved and put back exactly; "
        "give state_dict() numbers, text, tensors, lists and dicts instead"
    )


def _raw(data: bytes) -> Tensor:
    # frombuffer refuses no bytes; and torch.load(weights_only=True) refuses an empty bytes object.
    empty = torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else empty


def _numpy(value: np.ndarray[Any, Any] | np.generic) -> dict[str, Any]:
    return {
        _NUMPY: _raw(value.tobytes()),
        "dtype": value.dtype.str,
        "shape": value.shape,
        "scalar": isinstance(value, np.generic),
    }


def _key(key: Any, where: str) -> Any:
    parts = key if type(key) is tuple else (key,)
    if key not in _TAGS and all(type(p) in (str, int, float, bool, type(None)) for p in parts):
        return key
    raise NotReplayableError(
        f"{where}: the key {key!r} ({type(key).__qualname__}) cannot be used; use other text, "
        "or numbers"
    )


def _tensor(value: Tensor, where: str, memo: Memo) -> Any:
    if is_lazy(value):
        raise NotReplayableError(
            f"{where}: has no shape yet; run one forward pass of the lazy module before training"
        )
    if value.is_meta:
        raise NotReplayableError(f"{where}: is on the meta device and has no values; move it first")
    if value.layout is torch.sparse_coo:
        parts = [_tensor(value._indices(), where, memo), _tensor(value._values(), where, memo)]
        return {_SPARSE: parts, "size": value.shape, "coalesced": value.is_coalesced()}
    if value.layout is not torch.strided:
        raise NotReplayableError(
            f"{where}: {value.layout} tensors are not supported; make it dense"
        )
    value = value.detach()
    if value.numel() == 0:
        return value.to("cpu", copy=True)
    place = (value.device, value.data_ptr(), value.shape, value.stride(), value.dtype)
    if place not in memo:
        memo[place] = value, _own(value)
    return memo[place][1]


def _own(value: Tensor) -> Tensor:
    # resolve: a conjugate or negative *view* has other bits in memory than it shows.
    own = value.resolve_conj().resolve_neg().to("cpu", copy=True)
    return own if type(own) is Tensor else own.as_subclass(Tensor)


def from_plain(value: Any) -> Any:
    """Return what `to_plain` copied, as a fresh deep copy: no tensor shares memory with `value`."""
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, dict):
        return _from_dict(value)
    if type(value) in (list, tuple):
        return type(value)(from_plain(item) for item in value)
    return copy(value)


def _from_dict(value: dict[Any, Any]) -> Any:
    if _NUMPY in value:
        raw = value[_NUMPY].numpy().tobytes()
        array = np.frombuffer(raw, dtype=value["dtype"]).reshape(value["shape"])
        return array[()] if value["scalar"] else array.copy()
    if _BYTES in value:
        return value[_BYTES].numpy().tobytes()
    if _DEQUE in value:
        return deque((from_plain(item) for item in value[_DEQUE]), maxlen=value["maxlen"])
    if _SPARSE in value:
        indices, values = (from_plain(part) for part in value[_SPARSE])
        return torch.sparse_coo_tensor(
            indices, values, value["size"], is_coalesced=value["coalesced"], check_invariants=True
        )
    return type(value)({key: from_plain(item) for key, item in value.items()})


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every tensor and plain value with its path, in an order that no dict order changes.

    An empty container and a list of plain values are leaves: they are yielded themselves.
    """
    if isinstance(value, Mapping) and value:
        for key in sorted(value, key=lambda key: (type(key).__name__, repr(key))):
            yield from leaves(value[key], (*path, key if isinstance(key, str) else repr(key)))
    elif type(value) in (list, tuple) and not all(type(item) in _VALUES for item in value):
        for index, item in enumerate(value):
            yield from leaves(item, (*path, str(index)))
    else:
        yield path, value
