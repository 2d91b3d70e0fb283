"""Watches every tensor operation and remembers where non-finite numbers come from.

Each result is looked at once. Where it is not finite although the inputs were, an origin is noted;
where inputs were not, their origins travel on with the memory of the result. So at the end of an
update it is known which origin reached a loss, a gradient or a parameter, and which led nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from stabexp.instruments.locate_numbers import (
    FINE,
    Bad,
    fills_memory,
    is_finite,
    look,
    look_at_number,
    memory,
    readable,
    rows_affected,
    summary,
)
from stabexp.instruments.locate_operations import (
    LITERALS,
    Plan,
    arguments,
    called,
    node_name,
    plan_of,
)
from stabexp.instruments.locate_origins import Origin, merged
from stabexp.instruments.locate_places import Place, Trail, current_node, starts_backward
from stabexp.instruments.reasons import Numbers

SMALL = 65536
"""Elements up to which the old value of an overwritten tensor is kept, to say what it was like."""

ALWAYS_OWN = ("logsumexp", "nll_loss", "cross_entropy")
"""Operations that are origins even when they only pass a masking -inf on: -inf is then all there
was."""

Known = Mapping[StorageWeakRef, tuple[str, str]]
"""Memory → kind of origin and name, for what exists between steps."""


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The dispatch mode behind `Locate`; what is noted is read by it."""

    supports_higher_order_operators = True

    def __init__(self, trail: Trail) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.trail = trail
        self.step = 0
        self.ids: tuple[int, ...] = ()
        self.batch_rows = 0
        self.known: Known = {}
        """What exists before the step: parameters, buffers, optimizer state, the batch."""
        self.parameters: Mapping[StorageWeakRef, str] = {}
        self.origins: dict[StorageWeakRef, tuple[Origin, ...]] = {}
        """Memory that holds non-finite numbers → where they come from."""
        self.poisoned: tuple[str, tuple[Origin, ...]] | None = None
        """The first parameter that was overwritten with a non-finite number, and the origins."""
        self.updating = False
        """Whether a backward pass is over and the next forward pass has not begun."""
        self.roots: list[tuple[Origin, ...]] = []
        """Of every backward pass since it was emptied: the origins in what it started from."""
        self._unwritten: set[StorageWeakRef] = set()
        self._numbers: tuple[Origin, ...] = ()
        self._forward: set[int] = set()
        self._count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, OpOverload):  # flex_attention and the like; their parts come next
            return func(*args, **kwargs)
        plan = plan_of(func)
        written = [kwargs.get(w) if isinstance(w, str) else _at(args, w) for w in plan.written]
        before = self._before(written, plan)
        result = func(*args, **kwargs)
        self._follow()
        if plan.unwritten:
            self._unwritten.update(memory(t) for t in arguments(result) if isinstance(t, Tensor))
        elif not plan.skipped:
            self._examine(func, plan, args, kwargs, written, before, result)
            if plan.name == "ones_like" and starts_backward():
                self.roots.append(self.origins.get(memory(args[0]), ()))
        return result

    def _follow(self) -> None:
        if torch._C._current_graph_task_id() != -1:
            self.updating = True
            self.trail.follow()
        elif self.trail.follow():
            self.updating = False

    def _before(self, written: Sequence[Any], plan: Plan) -> dict[int, tuple[Tensor | None, Bad]]:
        """Look at what is about to be overwritten, as far as it counts as an input."""
        seen: dict[int, tuple[Tensor | None, Bad]] = {}
        if not plan.reads_written:
            return seen
        for tensor in arguments(list(written)):
            if readable(tensor):
                copy = tensor.clone() if tensor.numel() <= SMALL else None
                seen[id(tensor)] = (copy, look(tensor))
        return seen

    def _read_number(self, args: tuple[Any, ...]) -> None:
        if readable(args[0]) and (found := self.origins.get(memory(args[0]))):
            self._numbers = merged(self._numbers, found)

    def _examine(
        self,
        func: Any,
        plan: Plan,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        written: Sequence[Any],
        before: Mapping[int, tuple[Tensor | None, Bad]],
        result: Any,
    ) -> None:
        if plan.name == "local_scalar_dense":
            self._read_number(args)
            return
        outputs = [t for t in arguments([*written, result]) if readable(t)]
        unique = list({id(t): t for t in outputs}.values())
        bad = [t for t in unique if not is_finite(t)]
        if len(bad) < len(unique) and self.origins:
            for tensor in unique:
                if fills_memory(tensor) and not any(tensor is other for other in bad):
                    self.origins.pop(memory(tensor), None)
        if not bad:
            return
        given = [*args, *kwargs.values()]
        if plan.elementwise_lists:
            for index, group in _groups(args, kwargs, written, result):
                wrong = [t for t in bad if any(t is other for other in group)]
                if wrong:
                    inputs = [_at(a, index) if isinstance(a, (list, tuple)) else a for a in given]
                    self._attribute(func, plan, inputs, before, wrong)
        else:
            self._attribute(func, plan, arguments(given), before, bad)

    def _attribute(
        self,
        func: Any,
        plan: Plan,
        inputs: Sequence[Any],
        before: Mapping[int, tuple[Tensor | None, Bad]],
        results: Sequence[Tensor],
    ) -> None:
        """Find where the non-finite results come from, and remember it with their memory."""
        overwritten = {id(t) for t in results if not plan.reads_written}
        tensors = [t for t in inputs if readable(t) and id(t) not in overwritten]
        states = [before[id(t)][1] if id(t) in before else look(t) for t in tensors]
        made = FINE
        for tensor in results:
            made = made | look(tensor)
        number = FINE
        for value in inputs:
            if isinstance(value, float):
                number = number | look_at_number(value)
        came: Bad = number
        for state in states:
            came = came | state
        nans = [t for t, s in zip(tensors, states, strict=True) if s.nan]
        wrong = (
            nans if made.nan and nans else [t for t, s in zip(tensors, states, strict=True) if s]
        )
        sources = merged(*(self.sources_of(t, plan) for t in wrong))
        written_down = plan.name in LITERALS
        if (number.nan and not written_down) or (number and self._numbers):
            sources = merged(sources, self._numbers or (self._read("number", "", number, plan),))
        own = not came or (made.nan and not came.nan) or (number and not sources)
        if own or (plan.name in ALWAYS_OWN and all(origin.meant for origin in sources)):
            kept = [(before.get(id(t), (t, FINE))[0], t) for t in tensors]
            seen = tuple(
                Numbers(dtype=str(t.dtype).removeprefix("torch."), shape=tuple(t.shape))
                if value is None
                else summary(value)
                for value, t in kept
            )
            sources = (self._computed(func, plan, made, seen, tensors, results, sources, number),)
        for tensor in results:
            key = memory(tensor)
            old = () if fills_memory(tensor) else self.origins.get(key, ())
            self.origins[key] = merged(old, sources)
            if key in self.parameters and self.poisoned is None:
                self.poisoned = (self.parameters[key], self.origins[key])

    def sources_of(self, tensor: Tensor, plan: Plan | None = None) -> tuple[Origin, ...]:
        """Return the origins of the non-finite numbers in a tensor."""
        key = memory(tensor)
        found = self.origins.get(key)
        if found is None:
            kind, name = self.known.get(key, ("constant", ""))
            if key in self._unwritten:
                kind = "uninitialised"
            found = (self._read(kind, name, look(tensor), plan, tensor),)
            self.origins[key] = found
        return found

    def _read(
        self, kind: str, name: str, made: Bad, plan: Plan | None, tensor: Tensor | None = None
    ) -> Origin:
        """Return the origin of numbers that nobody watched being made."""
        rows = None
        if kind == "input" and tensor is not None:
            rows = rows_affected([tensor], self.batch_rows)
        place = self.trail.here()
        phase = {"input": "input", "parameter": "parameter", "state": "optimizer"}.get(kind)
        self._count += 1
        return Origin(
            order=self._count,
            step=self.step,
            phase=phase or self._phase(place),
            kind=kind,
            made=made,
            operation=plan.name if plan else "",
            aten="",
            place=place,
            dtype="" if tensor is None else str(tensor.dtype).removeprefix("torch."),
            inputs=() if tensor is None else (summary(tensor),),
            rows=rows,
            ids=self.ids,
            name=name,
        )

    def _phase(self, place: Place) -> str:
        if torch._C._current_graph_task_id() != -1:
            return "forward" if place.written and place.role == "checkpoint" else "backward"
        if place.role in {"optimizer", "scaler"}:
            return place.role
        return "optimizer" if self.updating and not place.module else "forward"

    def _computed(
        self,
        func: Any,
        plan: Plan,
        made: Bad,
        seen: tuple[Numbers, ...],
        inputs: Sequence[Tensor],
        results: Sequence[Tensor],
        parents: tuple[Origin, ...],
        number: Bad,
    ) -> Origin:
        place = self.trail.here()
        phase = self._phase(place)
        operation, hidden = called(plan.name, place.function), False
        if phase == "backward" and not place.written:
            name, node = current_node()
            operation = called(node_name(name) or plan.name, place.function)
            hidden = node in self._forward
        elif self.trail.built and plan.name not in LITERALS:
            self._forward.add(self.trail.newest)
        owner = ""
        for tensor in results:
            owner = owner or self.parameters.get(memory(tensor), "")
        logs = plan.name in {"log", "log2"} and phase == "forward"
        self._count += 1
        return Origin(
            order=self._count,
            step=self.step,
            phase=phase,
            kind="computed",
            made=made,
            operation=operation,
            aten=str(func),
            place=place,
            dtype=str(results[0].dtype).removeprefix("torch."),
            inputs=seen,
            infinite_number=bool(number),
            parents=parents,
            rows=rows_affected(results, self.batch_rows) if phase != "optimizer" else None,
            ids=self.ids,
            name=owner,
            hidden=hidden,
            mask_like=logs and all(_is_mask(t) for t in inputs),
        )

    def forget_graphs(self) -> None:
        """Drop what belongs to updates that are over."""
        self.trail.clear()
        self._forward.clear()
        self._numbers = ()
        self._unwritten = {key for key in self._unwritten if not key.expired()}  # type: ignore[no-untyped-call]
        self.origins = {k: v for k, v in self.origins.items() if not k.expired()}  # type: ignore[no-untyped-call]


def _at(values: Any, index: int) -> Any:
    return values[index] if index < len(values) else None


def _is_mask(tensor: Tensor) -> bool:
    """Return whether a tensor holds zeros and ones, both of them, and nothing else."""
    ones = tensor == 1
    return not tensor.requires_grad and bool(((tensor == 0) | ones).all() and ones.any())


def _groups(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], written: Sequence[Any], result: Any
) -> list[tuple[int, list[Any]]]:
    """Return, for every index into the lists, the tensors that the operation made there."""
    made = [w for w in (*written, result) if isinstance(w, (list, tuple))]
    length = max((len(item) for item in made), default=0)
    return [(index, [_at(item, index) for item in made]) for index in range(length)]
