"""Names the operation that made the first NaN or infinity of a diverging training.

Watches every tensor operation of forward pass, backward pass and update. What counts is harm: an
operation is named when the numbers it made reached a loss, a gradient or a parameter. It is the one
that made them, not one they passed through; for a gradient the line is that of the forward
operation. Compiled code is watched as it was written, because torch runs it so under a mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from pydantic import Field, PrivateAttr
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._python_dispatch import _disable_current_modes

from stabexp.instruments.base import Instrument, Watched
from stabexp.instruments.locate_numbers import is_finite, memory, readable, tensors_in
from stabexp.instruments.locate_operations import LITERALS
from stabexp.instruments.locate_origins import Origin, blamed, first_blamed, merged
from stabexp.instruments.locate_places import Trail, module_names
from stabexp.instruments.locate_watch import Watch
from stabexp.instruments.reason_words import WORDS
from stabexp.instruments.reasons import Circumstances, reason_for

SHOWN = 5
"""Events of the chain from origin to harm that are reported."""


@dataclass(frozen=True)
class _Harm:
    """Something that must be finite was not."""

    reached: str
    """"loss", "gradient" or "parameter"."""
    origins: tuple[Origin, ...]
    name: str = ""


class Locate(Instrument):
    """Find the operation that made the first non-finite number."""

    first_step: int = Field(0, ge=0)
    """First step that is watched; before it nothing is looked at and nothing costs time."""

    _watched: Watched | None = PrivateAttr(default=None)
    _watch: Watch | None = PrivateAttr(default=None)
    _inside: bool = PrivateAttr(default=False)
    _handles: list[Any] = PrivateAttr(default_factory=list)
    _harms: list[_Harm] = PrivateAttr(default_factory=list)
    _gradients: set[str] = PrivateAttr(default_factory=set)
    _logged: bool = PrivateAttr(default=False)
    _finding: dict[str, Any] | None = PrivateAttr(default=None)
    _settled: bool = PrivateAttr(default=False)

    def attach(self, watched: Watched) -> None:
        self._watched = watched
        self._watch = Watch(Trail(module_names(watched.model)))
        for name, parameter in self._parameters().items():
            if parameter.requires_grad and parameter.is_leaf:
                hook = self._gradient_hook(name)
                self._handles.append(parameter.register_hook(hook))  # type: ignore[no-untyped-call]
        self._handles.append(register_optimizer_step_post_hook(self._updated))

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        watch = self._watch
        assert watch is not None
        if self._settled or step < self.first_step:
            return
        watch.step, watch.ids, watch.batch_rows = step, tuple(ids), len(ids)
        watch.known = self._known(batch)
        watch.parameters = {memory(p): name for name, p in self._parameters().items()}
        watch.updating = False
        watch.trail.resume()
        watch.__enter__()  # type: ignore[no-untyped-call]
        self._inside = True

    def logged(self, loss: Tensor) -> None:
        if self._watch is None or not self._inside:
            return
        self._logged = True
        with _disable_current_modes(), torch.no_grad():
            plain = loss.detach()
            if readable(plain) and not is_finite(plain):
                self._harms.append(_Harm("loss", self._watch.sources_of(plain)))

    def batch_ends(self) -> None:
        watch = self._watch
        if watch is None or not self._inside:
            return
        self._inside = False
        watch.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        if not self._logged:  # then the loss is what the backward passes started from
            self._harms += [_Harm("loss", origins) for origins in watch.roots if origins]
        if watch.poisoned is None and watch.origins:
            self._look_at_parameters(watch)
        if watch.poisoned is not None:
            name, origins = watch.poisoned
            self._harms.append(_Harm("parameter", origins, name))
            self._settle()

    def update_ends(self, step: int) -> None:
        self._settle()
        if self._watch is not None:
            self._watch.forget_graphs()

    def detach(self) -> None:
        self.batch_ends()
        self._settle()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def findings(self) -> dict[str, Any] | None:
        return self._finding

    def _parameters(self) -> dict[str, Tensor]:
        """Return every trained tensor by name, those of further models and optimizers included."""
        assert self._watched is not None
        found: dict[str, Tensor] = dict(self._watched.model.named_parameters())
        seen = {id(p) for p in found.values()}
        for key, value in {"optimizer": self._watched.optimizer, **self._watched.extra}.items():
            named: list[tuple[str, Tensor]] = []
            if isinstance(value, nn.Module):
                named = list(value.named_parameters())
            elif isinstance(value, torch.optim.Optimizer):
                every = [p for group in value.param_groups for p in group["params"]]
                named = [(str(index), p) for index, p in enumerate(every)]
            for name, parameter in named:
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    found[f"{key}.{name}"] = parameter
        return found

    def _known(self, batch: Any) -> dict[StorageWeakRef, tuple[str, str]]:
        assert self._watched is not None
        known: dict[StorageWeakRef, tuple[str, str]] = {}
        things = [self._watched.model, self._watched.optimizer, *self._watched.extra.values()]
        for optimizer in things:
            if isinstance(optimizer, torch.optim.Optimizer):
                for tensor in tensors_in(list(optimizer.state.values())):
                    if tensor.layout is torch.strided:
                        known[memory(tensor)] = ("state", "")
        for name, buffer in self._watched.model.named_buffers():
            if buffer.layout is torch.strided and readable(buffer) and buffer.isnan().any():
                known[memory(buffer)] = ("parameter", name)
        for name, parameter in self._parameters().items():
            known[memory(parameter)] = ("parameter", name)
        for tensor in tensors_in(batch):
            if tensor.layout is torch.strided:
                known[memory(tensor)] = ("input", "")
        return known

    def _gradient_hook(self, name: str) -> Callable[[Tensor], None]:
        def look(gradient: Tensor) -> None:
            watch = self._watch
            if watch is None or not self._inside or not watch.origins:
                return
            with _disable_current_modes(), torch.no_grad():
                plain = gradient.detach()
                if not readable(plain):
                    return
                if not is_finite(plain):
                    self._gradients.add("bad")
                    if not any(harm.reached == "gradient" for harm in self._harms):
                        self._harms.append(_Harm("gradient", watch.sources_of(plain), name))
                else:
                    self._gradients.add("moving" if plain.any() else "zero")

        return look

    def _updated(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._watch is not None:
            self._watch.updating = False

    def _look_at_parameters(self, watch: Watch) -> None:
        """Find parameters that were replaced rather than overwritten by an operation."""
        for name, parameter in self._parameters().items():
            plain = parameter.detach()
            if readable(plain) and not is_finite(plain) and memory(plain) in watch.origins:
                origins = watch.origins[memory(plain)]
                if any(origin.kind != "parameter" for origin in origins):
                    watch.poisoned = (name, origins)
                    return

    def _settle(self) -> None:
        """Decide what the update that just ended has shown."""
        harms, self._harms = self._harms, []
        gradients, self._gradients = self._gradients, set()
        seen = self._logged or (self._watch is not None and bool(self._watch.roots))
        self._logged = False
        if self._watch is not None:
            self._watch.roots.clear()
        if self._settled or not harms:
            return
        reached = {harm.reached for harm in harms}
        # No harm: a loss that is not finite but moves nothing, and a gradient that the loop or the
        # loss scaling left out while the loss was well.
        still = reached == {"loss"} and gradients == {"zero"}
        harmless = still or reached == {"gradient"}
        if "parameter" in reached and gradients == {"zero"}:
            harms = [harm for harm in harms if harm.reached != "loss"]
        known = self._finding
        worse = "parameter" in reached and (known is None or known["reached"] != "parameter")
        if known is None or worse or (known["harmless"] and not harmless):
            hidden = seen and "loss" not in reached
            self._finding = _report(harms, harmless=harmless, hidden=hidden)
        self._settled = "parameter" in reached


def _report(harms: Sequence[_Harm], *, harmless: bool, hidden: bool) -> dict[str, Any]:
    """Return the finding; `hidden` tells that the loss was seen and finite."""
    origins = merged(*(harm.origins for harm in harms))
    origin = first_blamed(origins)
    assert origin is not None
    reached = {harm.reached: harm.name for harm in harms}
    final = next(kind for kind in ("parameter", "gradient", "loss") if kind in reached)
    reason = _reason(origin, hidden=hidden and (origin.hidden or origin.phase == "forward"))
    words = WORDS[reason]
    rows = origin.rows
    name = origin.name
    return {
        "step": origin.step,
        "phase": origin.phase,
        "operation": origin.operation,
        "function": origin.place.function,
        "aten": origin.aten,
        "module": origin.place.module or name.rpartition(".")[0],
        "parameter": name,
        "source": origin.place.source,
        "code": origin.place.code,
        "kind": "nan" if origin.made.nan else "inf",
        "dtype": origin.dtype,
        "inputs": "; ".join(numbers.text() for numbers in origin.inputs),
        "reason": reason,
        "explanation": words.explanation,
        "remedy": words.remedy,
        "sample_index": None if not rows else list(rows),
        "sample_ids": None if not rows else [origin.ids[row] for row in rows],
        "reached": final,
        "reached_name": reached[final],
        "chain": _chain(origin, origins),
        "harmless": harmless,
    }


def _chain(origin: Origin, origins: Sequence[Origin]) -> list[str]:
    """Return what followed from an origin, in order, as far as new kinds of numbers were made."""
    followed = [item for item in origins if item is not origin and blamed(item) is origin]
    return [item.line() for item in (origin, *followed)][:SHOWN]


def _reason(origin: Origin, *, hidden: bool) -> str:
    by_kind = {
        "input": "nonfinite_input",
        "parameter": "nonfinite_parameter",
        "state": "nonfinite_state",
        "uninitialised": "uninitialised_memory",
        "constant": "nonfinite_constant",
        "number": "nonfinite_number",
    }
    if origin.kind in by_kind:
        return by_kind[origin.kind]
    if origin.operation in LITERALS or origin.meant:
        return "written_value"
    found = Circumstances(
        operation=origin.operation,
        phase=origin.phase,
        kind="nan" if origin.made.nan else "inf",
        inputs=origin.inputs,
        dtype=origin.dtype,
        infinite_number=origin.infinite_number,
        aten=origin.aten,
        hidden=hidden,
    )
    plain = reason_for(replace(found, hidden=False))
    overflows = {"overflow", "fp16_overflow", "scaler", "update_division"}
    return plain if plain in overflows else reason_for(found)
