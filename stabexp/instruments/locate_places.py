"""Where an operation was asked for: the line of the user's code, the module, the library function.

A forward operation is asked for by the Python frames above it. A backward operation is not: the
engine runs it. But every node of the autograd graph carries a sequence number, given out just
before its forward operation runs, so the number says which forward line a gradient belongs to.
"""

from __future__ import annotations

import linecache
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn

_TORCH = str(Path(torch.__file__).parent) + "/"
_STABEXP = str(Path(__file__).parents[1]) + "/"
_OURS_FOR_USERS = (_STABEXP + "tasks/", _STABEXP + "demo/")
"""Models and losses that an experiment file names: what a user would look at."""
_LIBRARY = tuple(
    f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_ROLES = {
    "nn/modules/module.py": "module",
    "optim/optimizer.py": "optimizer",
    "amp/grad_scaler.py": "scaler",
    "nn/utils/clip_grad.py": "clip",
    "utils/checkpoint.py": "checkpoint",
    "nn/functional.py": "function",
    "functional.py": "function",
    "_tensor.py": "function",
    "autograd/graph.py": "engine",
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where an operation stands."""

    file: str = ""
    line: int = 0
    module: str = ""
    """Dotted name within the model; "" outside any module."""
    function: str = ""
    """The library function that the line calls, if the operation is a part of one: "kl_div"."""
    role: str = ""
    """"optimizer", "scaler", "clip" or "checkpoint" when such library code asked for it."""
    written: bool = False
    """Whether Python code running inside the backward pass asked for it."""

    @property
    def source(self) -> str:
        """ "net.py:31", or "" when no user code asked for it."""
        return f"{Path(self.file).name}:{self.line}" if self.file else ""

    @property
    def code(self) -> str:
        """The text of that line."""
        return linecache.getline(self.file, self.line).strip() if self.file else ""


@cache
def _role(code: CodeType) -> str:
    """Return what part of the world a function belongs to; "user" for the user's own code."""
    path = code.co_filename
    if path.startswith(_TORCH):
        role = _ROLES.get(path.removeprefix(_TORCH), "library")
        if role == "engine" and code.co_name != "_engine_run_backward":
            return "library"
        return "library" if role == "module" and code.co_name != "_call_impl" else role
    if path.startswith(_OURS_FOR_USERS):
        return "user"
    foreign = path.startswith((_STABEXP, *_LIBRARY, "<frozen")) or "-packages/" in path
    return "library" if foreign else "user"


def place_here(names: Mapping[nn.Module, str], *, through_engine: bool = False) -> Place:
    """Return the place that the running operation was asked for from, by the frames above.

    Args:
        names: The model's modules with their dotted names.
        through_engine: Look past a running backward pass, to the line that started it.
    """
    frame: FrameType | None = sys._getframe(1)
    backward = torch._C._current_graph_task_id() != -1
    file = module = function = role = ""
    line = 0
    inside = backward  # no frame of the engine met yet
    written = False
    while frame is not None:
        kind = _role(frame.f_code)
        if kind == "user":
            if not file:
                file, line, written = frame.f_code.co_filename, frame.f_lineno, inside
        elif kind == "function":
            if not file and not module and frame.f_code.co_name != "wrapped":
                function = frame.f_code.co_name
        elif kind == "module":
            module = module or _name(frame.f_locals.get("self"), names)
        elif kind in {"optimizer", "scaler"}:
            role = role if role or module else kind
        elif kind in {"clip", "checkpoint"}:
            role = kind
        elif kind == "engine":
            if file or not through_engine:
                break
            inside = False
        if file and module and not backward:
            break
        frame = frame.f_back
    return Place(file=file, line=line, module=module, function=function, role=role, written=written)


def starts_backward() -> bool:
    """Return whether the running operation makes the gradient that a backward pass starts from."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and _role(frame.f_code) == "library":
        if frame.f_code.co_name == "_make_grads":
            return True
        frame = frame.f_back
    return False


def _name(module: Any, names: Mapping[nn.Module, str]) -> str:
    return names.get(module, "") if isinstance(module, nn.Module) else ""


def module_names(model: nn.Module) -> dict[nn.Module, str]:
    """Return the dotted name of every module of a model, as written rather than as compiled."""
    return {
        module: name.removeprefix("_orig_mod.").removeprefix("_orig_mod")
        for name, module in model.named_modules()
    }


class Trail:
    """Remembers for every node of the autograd graph where its forward operation stands."""

    def __init__(self, names: Mapping[nn.Module, str]) -> None:
        self._names = names
        self._next = _sequence_number()
        self._places: dict[int, Place] = {}
        self.built = False
        """Whether the last operation followed made a node."""

    @property
    def newest(self) -> int:
        """The number of the newest node."""
        return self._next - 1

    def follow(self) -> bool:
        """Note the place of the nodes made since the last call; whether there were any."""
        now = _sequence_number()
        self.built = now != self._next
        if not self.built:
            return False
        # In a backward pass these are a recomputed forward, or the graph of the gradient itself.
        place = self.here()
        for number in range(self._next, now):
            self._places[number] = place
        self._next = now
        return True

    def here(self) -> Place:
        """Return the place of the running operation, in whatever phase."""
        if torch._C._current_graph_task_id() == -1:
            return place_here(self._names)
        here = place_here(self._names)
        known = self._places.get(current_node()[1])
        if here.written:
            return here if here.module or known is None else replace(here, module=known.module)
        return replace(known or place_here(self._names, through_engine=True), written=False)

    def resume(self) -> None:
        """Pass over the nodes made while nobody was watching."""
        self._next = _sequence_number()

    def clear(self) -> None:
        """Forget the graphs of the updates that are over."""
        self._places.clear()


def _sequence_number() -> int:
    return int(torch.autograd._get_sequence_nr())  # type: ignore[attr-defined]


def current_node() -> tuple[str, int]:
    """Return name and sequence number of the autograd node now running backward; "", -1 if none."""
    node = torch._C._current_autograd_node()
    return ("", -1) if node is None else (node.name(), node._sequence_nr())
