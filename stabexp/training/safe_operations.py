"""Keeps single operations inside their domain, so that a replay can show that one was to blame.

Where a named operation would make a NaN or an infinity out of numbers that are fine, it gives the
value at the nearest point of its domain instead (0 where there is none), and sends no gradient
there. Nothing else changes by a single bit. A training that then runs through had no other fault.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from stabexp.config import suggest
from stabexp.errors import ConfigError
from stabexp.instruments.locate_numbers import FINE, Bad, is_finite, look, readable
from stabexp.instruments.locate_operations import (
    ALIASES,
    NAMED_BY_FUNCTION,
    Plan,
    arguments,
    called,
    node_name,
    plan_of,
    raw_names,
    short_name,
)
from stabexp.instruments.locate_places import Place, Trail, current_node
from stabexp.instruments.reason_words import WORDS

Clamp = Callable[[Tensor], Tensor]


def _tiny(x: Tensor) -> float:
    return torch.finfo(x.dtype).tiny


def _eps(x: Tensor) -> float:
    return torch.finfo(x.dtype).eps


def _half_range(x: Tensor) -> Tensor:
    """Bound an exponent so that the exponential is the root of the largest number, with its sign.

    At the largest number itself the next operation would overflow.
    """
    bound = math.log(torch.finfo(x.dtype).max) / 2
    return x.clamp(-bound, bound)


DOMAINS: dict[str, Clamp] = {
    "log": lambda x: x.clamp(min=_tiny(x)),
    "log2": lambda x: x.clamp(min=_tiny(x)),
    "log10": lambda x: x.clamp(min=_tiny(x)),
    "log1p": lambda x: x.clamp(min=-1 + _eps(x)),
    "sqrt": lambda x: x.clamp(min=0),
    "acos": lambda x: x.clamp(-1, 1),
    "asin": lambda x: x.clamp(-1, 1),
    "acosh": lambda x: x.clamp(min=1),
    "atanh": lambda x: x.clamp(-1 + _eps(x), 1 - _eps(x)),
    "erfinv": lambda x: x.clamp(-1 + _eps(x), 1 - _eps(x)),
    "logit": lambda x: x.clamp(_eps(x), 1 - _eps(x)),
    "exp": _half_range,
    "expm1": _half_range,
    "sinh": _half_range,
    "cosh": _half_range,
    "exp2": lambda x: _half_range(x * math.log(2)) / math.log(2),
}
"""Operation of one argument → the nearest arguments at which it is finite."""

SATURATING = ("to", "matmul", "conv", "mul", "add", "sub", "sum", "cumsum", "square", "addcmul")
"""Operations whose infinities are numbers too large: they become the largest finite number."""

UPDATES = ("addcdiv", "addcmul", "lerp", "add", "sub", "adam", "adamw", "sgd", "adagrad")
"""Operations that change a value a little; where that fails in place, the value stays."""

WHATEVER_CAME_IN = ("logsumexp", "nll_loss")
"""Operations repaired also where an infinite input is what made them infinite."""


@cache
def known_names() -> frozenset[str]:
    """Return every name of an operation or library function that can be kept safe."""
    operations = {short_name(raw) for raw in raw_names()}
    return frozenset({*operations, *ALIASES.values(), *dir(torch.nn.functional)} - {""})


def operations_named(names: Iterable[str]) -> frozenset[str]:
    """Return the operations meant by names of operations, functions or reasons.

    Raises:
        ConfigError: If a name is unknown, or a reason that belongs to no operation of its own.
    """
    found: set[str] = set()
    for name in names:
        if name in known_names():
            found.add(name)
        elif name in WORDS and WORDS[name].operations:
            found.update(WORDS[name].operations)
        elif name in WORDS:
            raise ConfigError(
                f"safe operations: '{name}' says nothing about which operation; name the operation"
            )
        else:
            choices = sorted({item for word in WORDS.values() for item in word.operations})
            raise ConfigError(f"safe operations: '{name}': unknown; {suggest(name, choices)}")
    return frozenset(found)


class SafeOperations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context in which the named operations make no NaN and no infinity, forward and backward.

    Enter it before an instrument that watches operations, so that the instrument sees the repaired
    results.
    """

    supports_higher_order_operators = True

    def __init__(self, names: Sequence[str], *, sources: Sequence[str] = ()) -> None:
        """Keep operations safe.

        Args:
            names: Operations ("log"), library functions ("normalize") or reasons ("log_of_zero"),
                as the locator gives them.
            sources: Lines ("net.py:31") from which operations are kept safe; empty for all.

        Raises:
            ConfigError: If a name is unknown.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.repaired = 0
        """Results in which something was repaired so far."""
        self._names = operations_named(names)
        self._sources = frozenset(sources)
        parts = {
            part
            for part, by in NAMED_BY_FUNCTION.items()
            if self._names & {called(part, f) for f in by}
        }
        self._candidates = self._names | parts
        self._functions = self._names & frozenset(dir(torch.nn.functional))
        self._trail = Trail({})
        self._nodes: set[int] = set()
        self._masks: dict[int, Tensor] = {}

    def __enter__(self) -> SafeOperations:
        self._trail.resume()
        self._trail.clear()
        self._nodes.clear()
        self._masks.clear()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, OpOverload):  # flex_attention and the like; their parts come next
            return func(*args, **kwargs)
        plan = plan_of(func)
        operation = "" if plan.skipped else self._meant(plan)
        old = self._old(plan, args) if operation else {}
        result = func(*args, **kwargs)
        backward = torch._C._current_graph_task_id() != -1
        if self._trail.follow() and operation and backward:
            self._nodes.add(self._trail.newest)
        if operation:
            self._repair(func, plan, operation, [*args, *kwargs.values()], old, result)
        return result

    def _meant(self, plan: Plan) -> str:
        """Return the name by which the running operation is to be kept safe; "" if it is not."""
        if torch._C._current_graph_task_id() != -1:
            name, number = current_node()
            names = {node_name(name), plan.name}
            if number not in self._nodes and not (names & self._candidates or self._functions):
                return ""
            place = self._trail.here()
            if number in self._nodes and self._from(place):
                return plan.name
            own = plan.name if place.written else node_name(name)
        else:
            if plan.name not in self._candidates and not self._functions:
                return ""
            place, own = self._trail.here(), plan.name
        meant = called(own, place.function) in self._names or own in self._names
        return own if (meant or place.function in self._functions) and self._from(place) else ""

    def _from(self, place: Place) -> bool:
        return not self._sources or place.source in self._sources

    def _old(self, plan: Plan, args: tuple[Any, ...]) -> dict[int, tuple[Tensor, Bad]]:
        """Return what is about to be overwritten, by the identity of the tensor."""
        given = [args[w] for w in plan.written if isinstance(w, int) and w < len(args)]
        return {id(t): (t.clone(), look(t)) for t in arguments(given) if readable(t)}

    def _repair(
        self,
        func: Any,
        plan: Plan,
        operation: str,
        inputs: Sequence[Any],
        old: dict[int, tuple[Tensor, Bad]],
        result: Any,
    ) -> None:
        written = [t for t in arguments(list(inputs)) if id(t) in old]
        results = [t for t in arguments([*written, result]) if readable(t)]
        if operation == "ctc_loss" and not plan.name.endswith("backward"):
            results = results[:1]  # the second result is a table in which -inf is right
        for tensor in {id(t): t for t in results}.values():
            self._silence(operation, tensor)
            if is_finite(tensor):
                continue
            came = FINE
            for other in arguments(
                _beside(inputs, tensor) if plan.elementwise_lists else list(inputs)
            ):
                if readable(other):
                    came = came | (old[id(other)][1] if id(other) in old else look(other))
            wrong = self._wrong(operation, tensor, came)
            if not wrong.any():
                continue
            self.repaired += 1
            value = self._value(func, operation, tensor, inputs, old)
            if torch._C._current_graph_task_id() == -1 and self._trail.built:
                self._masks[self._trail.newest] = wrong
            tensor.copy_(torch.where(wrong, value, tensor))

    def _wrong(self, operation: str, tensor: Tensor, came: Bad) -> Tensor:
        """Return which elements the operation itself made non-finite, as booleans."""
        infinite = came.positive or came.negative
        if operation in WHATEVER_CAME_IN and not came.nan:
            return ~torch.isfinite(tensor)
        wrong = torch.zeros_like(tensor, dtype=torch.bool)
        if not came.nan:
            wrong |= torch.isnan(tensor)
            if not infinite:
                wrong |= torch.isinf(tensor)
        return wrong

    def _silence(self, operation: str, tensor: Tensor) -> None:
        """Send no gradient to where the forward result was repaired."""
        if torch._C._current_graph_task_id() == -1:
            return
        mask = self._masks.get(current_node()[1])
        if mask is None:
            return
        if operation == "ctc_loss" and tensor.dim() == 3 and tensor.shape[1:2] == mask.shape:
            tensor.masked_fill_(mask[None, :, None], 0)  # frames × samples × classes
        elif tensor.shape == mask.shape:
            tensor.masked_fill_(mask, 0)

    def _value(
        self,
        func: Any,
        operation: str,
        tensor: Tensor,
        inputs: Sequence[Any],
        old: dict[int, tuple[Tensor, Bad]],
    ) -> Tensor:
        """Return what stands in for non-finite elements, in the shape of the result."""
        zero = torch.zeros_like(tensor)
        if id(tensor) in old and operation in UPDATES:
            return old[id(tensor)][0]
        if torch._C._current_graph_task_id() != -1:
            return zero
        if operation in DOMAINS and len([t for t in inputs if isinstance(t, Tensor)]) == 1:
            given = next(t for t in inputs if isinstance(t, Tensor))
            source = old[id(given)][0] if id(given) in old else given
            inner = func(DOMAINS[operation](torch.nan_to_num(source)).clone())
            return inner if isinstance(inner, Tensor) else zero
        if operation in SATURATING:
            return torch.nan_to_num(tensor, nan=0.0)
        return zero


def _beside(inputs: Sequence[Any], tensor: Tensor) -> list[Any]:
    """Return the arguments that a tensor in one of the lists was computed from."""
    lists = [item for item in inputs if isinstance(item, (list, tuple))]
    position = next((i for item in lists for i, other in enumerate(item) if other is tensor), None)
    if position is None:
        return list(inputs)
    return [
        item[position] if isinstance(item, (list, tuple)) and position < len(item) else item
        for item in inputs
        if not isinstance(item, (list, tuple)) or position < len(item)
    ]
