"""How far every module is from the ends of half precision, and what float16 needs around it.

float16 ends at 65,504 and below 5.96e-8 it is zero; bfloat16 has the range of float32 and eight
bits. The figures are those of the dry run under the configured autocast (source rows A8, A10, B9).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from stabexp.instruments.base import Watched
from stabexp.instruments.rule_base import Call, Finding, Rule, place
from stabexp.preflight.layers import first_tensor
from stabexp.preflight.result import ModuleRange

LARGEST = 65_504.0
SUBNORMAL = 2.0**-24
"""5.96e-8: the smallest number above 0 that float16 has."""
HEADROOM = 4.0
"""Times that an activation may still grow before it overflows; in training they do grow."""


class HalfHeadroom(Rule):
    """Activations in float16 are well below its largest number."""

    slug: ClassVar[str] = "little_headroom"
    watches_modules: ClassVar[bool] = True
    watches: ClassVar[frozenset[str]] = frozenset(
        {"matmul", "__matmul__", "bmm", "baddbmm", "einsum", "mul", "__mul__", "__rmul__", "div"}
        | {
            "pow",
            "__pow__",
            "square",
            "exp",
            "sum",
            "cumsum",
            "norm",
            "logsumexp",
            "add",
            "__add__",
        }
    )

    def __init__(self) -> None:
        self._step = 0
        self._largest: dict[str, tuple[float, str]] = {}
        self._modules: dict[str, nn.Module] = {}
        self._tiny: dict[str, tuple[int, int]] = {}
        self._near: tuple[int, str, str, float] | None = None
        self._scale = 1.0

    def attach(self, watched: Watched) -> None:
        self._scaler = watched.scaler
        self._names = {
            id(module): name
            for name, module in watched.model.named_modules()
            if not any(True for _ in module.children())
        }

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        self._step = step

    def module_left(self, module: nn.Module, output: Any) -> None:
        name, made = self._names.get(id(module)), first_tensor(output)
        if name is None or made is None or not made.numel():
            return
        largest = _largest(made)
        known = self._largest.get(name, (0.0, ""))[0]
        self._largest[name] = (max(known, largest), str(made.dtype).removeprefix("torch."))
        self._modules[name] = module
        self._look(made, name, largest)

    def called(self, call: Call) -> None:
        made = call.result
        if isinstance(made, Tensor) and made.dtype == torch.float16 and made.numel():
            self._look(made, "", _largest(made))

    def _look(self, made: Tensor, name: str, largest: float) -> None:
        if made.dtype != torch.float16 or not made.requires_grad or largest < LARGEST / HEADROOM:
            return
        if self._near is None or (not math.isfinite(largest) and math.isfinite(self._near[3])):
            self._near = (self._step, name, place(), largest)

    def update_begins(self) -> None:
        for name, module in self._modules.items():
            grads = [p.grad for p in module.parameters(recurse=False) if p.grad is not None]
            for grad in grads:
                size = grad.detach().abs()
                moving = int((size > 0).sum())
                tiny = int(((size > 0) & (size < SUBNORMAL)).sum())
                before = self._tiny.get(name, (0, 0))
                self._tiny[name] = (before[0] + tiny, before[1] + moving)

    def ranges(self) -> tuple[ModuleRange, ...]:
        """Return the range of every module, in the order in which they ran."""
        return tuple(
            ModuleRange(
                module=name,
                dtype=dtype,
                largest=largest,
                headroom=LARGEST / largest if largest else math.inf,
                vanishing=self._tiny[name][0] / self._tiny[name][1]
                if self._tiny.get(name, (0, 0))[1]
                else None,
            )
            for name, (largest, dtype) in self._largest.items()
        )

    def finding(self) -> Finding | None:
        if self._near is None:
            return None
        step, name, where, largest = self._near
        over = not math.isfinite(largest)
        return Finding(
            rule=self.slug,
            step=step,
            place=f"{name}, at {where}" if name else where,
            detail=f"a float16 number {'beyond' if over else 'of'} "
            f"{65504.0 if over else largest:,.0f}"
            + (
                "" if over else f": it may grow {LARGEST / largest:.2g} times before it is infinite"
            ),
            remedy="compute this in float32 (leave autocast for it, or convert its input with "
            ".float()), use bfloat16, or scale it down before",
            strength="certain" if over else "suspicious",
        )


def _largest(made: Tensor) -> float:
    found = float(made.detach().abs().amax())
    return math.inf if math.isnan(found) else found


class LossScaled(Rule):
    """Gradients that pass through float16 are scaled up on the way."""

    slug: ClassVar[str] = "loss_scale_missing"
    watches_modules: ClassVar[bool] = True

    def __init__(self, loss_scale: Callable[[], float | None]) -> None:
        """`loss_scale` returns what the loss was multiplied by, None if that is not known."""
        self._loss_scale = loss_scale
        self._where = ""
        self._step = 0

    def attach(self, watched: Watched) -> None:
        self._scaler = watched.scaler
        self._names = {id(module): name for name, module in watched.model.named_modules()}

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        self._step = step

    def module_left(self, module: nn.Module, output: Any) -> None:
        made = first_tensor(output)
        if self._where or made is None or made.dtype != torch.float16 or not made.requires_grad:
            return
        if any(p.requires_grad for p in module.parameters(recurse=False)):
            self._where = self._names.get(id(module), type(module).__name__)

    def finding(self) -> Finding | None:
        enabled = self._scaler is not None and self._scaler.is_enabled()
        scale = self._loss_scale()
        if not self._where or enabled or scale is None or scale >= 16:
            return None
        return Finding(
            rule=self.slug,
            step=0,
            place=self._where,
            detail=f"{self._where} computes in float16 and the loss is multiplied by {scale:.3g} "
            "only: "
            "gradients below 5.96e-8 become zero on the way back",
            remedy="use torch.amp.GradScaler (run.scaler()), or bfloat16, which needs none",
        )


class AdamEpsilon(Rule):
    """Adam's epsilon is a number above zero in the format of the weights."""

    slug: ClassVar[str] = "adam_eps_vanishes"

    def __init__(self) -> None:
        self._found: Finding | None = None

    def attach(self, watched: Watched) -> None:
        for group in watched.optimizer.param_groups:
            eps = group.get("eps")
            if not isinstance(eps, float) or eps >= SUBNORMAL / 2 or self._found:
                continue
            half = [p for p in group["params"] if p.dtype == torch.float16]
            if half:
                self._found = Finding(
                    rule=self.slug,
                    step=0,
                    place=type(watched.optimizer).__name__,
                    detail=f"eps = {eps:.3g} is 0 in float16, the format of {len(half)} "
                    "parameters, so "
                    "where the second moment is 0 the update is 0 / 0 or infinite",
                    remedy="keep the weights in float32 and use autocast; in float16 set eps to "
                    "1e-4",
                )

    def finding(self) -> Finding | None:
        return self._found
