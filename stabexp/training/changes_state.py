"""What the optimizer remembers can be emptied before a replay, or kept from being lost during one.

State is changed by an update and by nothing else; a loop that empties it, or loads an older one,
has an error that only shows as a few giant steps. Copies are compared bit for bit, and state that
nobody touched is left alone, object for object.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor
from torch.optim import Adagrad, Optimizer


class KeptState:
    """A copy of the state as the last update left it, to be put back when something changed it."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._copies: dict[Any, Any] = {}
        self.remember()

    def remember(self) -> None:
        """Take the state as it is now for the one to keep."""
        self._copies = {key: copy.deepcopy(value) for key, value in self._optimizer.state.items()}

    def put_back(self) -> None:
        """Undo whatever was done to the state since `remember`."""
        state = self._optimizer.state
        for key in [key for key in state if key not in self._copies]:
            del state[key]
        for key, kept in self._copies.items():
            if key not in state or not _same(state[key], kept):
                state[key] = copy.deepcopy(kept)


def empty_state(optimizer: Optimizer) -> None:
    """Make the optimizer forget everything, as if it had made no update yet."""
    if isinstance(optimizer, Adagrad):  # its step takes for granted what its constructor made
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                optimizer.state[parameter]["step"].zero_()
                optimizer.state[parameter]["sum"].fill_(group["initial_accumulator_value"])
        return
    optimizer.state.clear()


def _same(one: Any, other: Any) -> bool:
    """Whether two nested values are equal bit for bit, NaN included."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return (
            one.dtype == other.dtype
            and one.shape == other.shape
            and one.device == other.device
            and torch.equal(_bytes(one), _bytes(other))
        )
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and bool(one == other)


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
