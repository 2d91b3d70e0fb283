"""What a step rule is: one invariant of a correctly written training step, and how it was broken.

A rule sees the step as it happens: the batch, every torch function the loop calls, the logged loss,
the scalar that is differentiated, the gradients before the update and the weights after it. It only
looks; whatever it keeps is its own copy.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from stabexp.instruments.base import Watched

Strength = Literal["certain", "suspicious"]

_TORCH = str(Path(torch.__file__).parent)
_OWN = tuple(
    str(Path(__file__).parents[1] / name) for name in ("instruments", "training", "preflight")
)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One broken rule, with what a person needs to mend it."""

    rule: str
    step: int
    """The first update at which it was seen."""
    place: str
    """ "train.py:31", or the name of a parameter, buffer or module."""
    detail: str
    """One sentence with the figures."""
    remedy: str
    strength: Strength = "certain"
    cure: tuple[str, float | int | str] | None = None
    """Intervention and dose by which a replay can prove it."""
    samples: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the finding as JSON-ready values."""
        cure = {"variable": self.cure[0], "dose": self.cure[1]} if self.cure else None
        return {
            "rule": self.rule,
            "step": self.step,
            "place": self.place,
            "detail": self.detail,
            "remedy": self.remedy,
            "strength": self.strength,
            "samples": list(self.samples),
            "cure": cure,
        }


@dataclass(frozen=True, slots=True)
class Call:
    """One torch function the loop called, by name: "cross_entropy", "sub", "__getitem__", …"""

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: Any = None

    def argument(self, index: int, name: str, default: Any = None) -> Any:
        """Return an argument given by position or by name."""
        return self.args[index] if len(self.args) > index else self.kwargs.get(name, default)


class Rule:
    """One invariant; every method may be left out."""

    slug: ClassVar[str] = ""
    watches: ClassVar[frozenset[str]] = frozenset()
    """Names of the torch functions that `called` wants to see."""
    watches_before: ClassVar[frozenset[str]] = frozenset()
    """Names of the torch functions that `calling` wants to see."""

    watches_modules: ClassVar[bool] = False
    """Whether `module_entered` and `module_left` are wanted."""

    def attach(self, watched: Watched) -> None:
        """Get to know the training."""

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        """The loop is about to receive a batch."""

    def calling(self, call: Call) -> None:
        """A watched function is about to run."""

    def called(self, call: Call) -> None:
        """A watched function has run."""

    def logged(self, loss: Tensor) -> None:
        """The loop logged its loss."""

    def module_entered(self, module: nn.Module, inputs: Any) -> None:
        """A module, of the model or not, is about to run, perhaps inside a backward pass."""

    def module_left(self, module: nn.Module, output: Any) -> None:
        """It has run."""

    def backward_begins(self, scalars: Sequence[Tensor]) -> None:
        """These are about to be differentiated; their graph is whole."""

    def backward_ends(self) -> None:
        """The gradients were added to `grad`."""

    def update_begins(self) -> None:
        """The gradients are what the optimizer will use."""

    def update_made(self) -> None:
        """The optimizer has stepped."""

    def batch_ends(self) -> None:
        """The loop is done with the batch."""

    def update_ends(self, step: int) -> None:
        """The update of `step` is complete, or was left out by the scaler."""

    def detach(self) -> None:
        """Take back any hook."""

    def finding(self) -> Finding | None:
        """Return how the rule was broken, None when it was not."""
        return None


def place() -> str:
    """Return "file.py:31", the innermost line being run that is neither torch's nor ours."""
    frame = sys._getframe(1)
    fallback = ""
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_TORCH, *_OWN)):
            here = f"{Path(name).name}:{frame.f_lineno}"
            if "site-packages" not in name and not name.startswith("<"):
                return here
            fallback = fallback or here
        if frame.f_back is None:
            break
        frame = frame.f_back
    return fallback


def called_from(file: str, *, depth: int = 12) -> bool:
    """Return whether a file whose path ends so is among the innermost `depth` frames."""
    frame = sys._getframe(1)
    for _ in range(depth):
        if frame.f_code.co_filename.endswith(file):
            return True
        if frame.f_back is None:
            break
        frame = frame.f_back
    return False


def tensors(value: Any) -> list[Tensor]:
    """Return the tensors in a batch of tensors, tuples, lists and dicts, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [tensor for item in value.values() for tensor in tensors(item)]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors(item)]
    return []
