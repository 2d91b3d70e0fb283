"""Numbers keep their meaning in the format they are computed in.

A byte minus 128 wraps around; 257 and 258 are one number in bfloat16; the deviation of a single
value is not a number. Each is seen where it happens, with the line that does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from stabexp.instruments.base import Watched
from stabexp.instruments.rule_base import Call, Finding, Rule, place
from stabexp.instruments.rule_losses import OftenAtOnePlace

_SMALL = (torch.uint8, torch.int8, torch.int16)
_HALF = (torch.float16, torch.bfloat16)
_OUT_OF_PLACE = frozenset(
    {"sub", "__sub__", "rsub", "__rsub__", "subtract", "add", "__add__", "__radd__", "mul"}
    | {"__mul__", "__rmul__", "multiply", "neg", "__neg__", "pow", "__pow__", "square"}
)
_IN_PLACE = frozenset({"sub_", "add_", "mul_", "neg_", "pow_", "__isub__", "__iadd__", "__imul__"})
_CASTS = frozenset({"to", "type", "half", "bfloat16", "byte", "char", "short"})


class IntegerWraps(OftenAtOnePlace):
    """Arithmetic on small integers stays in their range."""

    slug: ClassVar[str] = "integer_wraps"
    watches: ClassVar[frozenset[str]] = _OUT_OF_PLACE | _IN_PLACE | _CASTS
    watches_before: ClassVar[frozenset[str]] = _IN_PLACE

    def __init__(self) -> None:
        super().__init__()
        self._kept: Tensor | None = None

    def calling(self, call: Call) -> None:
        first = call.args[0] if call.args else None
        small = isinstance(first, Tensor) and first.dtype in _SMALL
        self._kept = first.clone() if small and isinstance(first, Tensor) else None

    def called(self, call: Call) -> None:
        result = call.result
        if not isinstance(result, Tensor) or result.dtype not in _SMALL or not result.numel():
            return
        first = self._kept if call.name in _IN_PLACE else call.args[0]
        self._kept = None
        if not isinstance(first, Tensor):
            return
        limits = torch.iinfo(result.dtype)
        if call.name in _CASTS:
            if not first.is_floating_point() or not first.numel():
                return
            exact = first.detach().double().trunc()
        else:
            function = getattr(
                torch.Tensor,
                call.name.rstrip("_")
                if call.name in _IN_PLACE and not call.name.startswith("__")
                else call.name,
            )
            if call.name.startswith("__i"):
                function = getattr(torch.Tensor, "__" + call.name[3:])
            rest = [_wide(value) for value in call.args[1:]]
            exact = function(_wide(first), *rest, **{k: _wide(v) for k, v in call.kwargs.items()})
        outside = (exact < limits.min) | (exact > limits.max)
        count = int(outside.sum())
        if count:
            kind = str(result.dtype).removeprefix("torch.")
            self._saw(
                f"{count} of {result.numel()} results of {call.name} lie between "
                f"{float(exact.min()):.4g} and {float(exact.max()):.4g}, outside {kind} "
                f"({limits.min} to {limits.max}), and wrapped around",
                "convert to float before computing with it",
            )


def _wide(value: Any) -> Any:
    return value.long() if isinstance(value, Tensor) else value


class PositionsCollide(OftenAtOnePlace):
    """Positions that differ still differ in the number format they are computed in."""

    slug: ClassVar[str] = "positions_collide"
    enough: ClassVar[int] = 1
    watches: ClassVar[frozenset[str]] = frozenset(
        {"to", "type", "half", "bfloat16", "arange", "__getitem__", "embedding", "index_select"}
        | {"matmul", "__matmul__", "bmm", "einsum", "outer"}
    )

    def __init__(self) -> None:
        super().__init__()
        self._checked: dict[int, Tensor] = {}
        """Tables that were looked at, kept so that no other takes their id."""

    def attach(self, watched: Watched) -> None:
        for name, module in watched.model.named_modules():
            held = [*module.named_buffers(recurse=False), *vars(module).items()]
            for attribute, value in held:
                if isinstance(value, Tensor) and not value.requires_grad:
                    self._check_table(value, f"{name}.{attribute}".lstrip("."))

    def called(self, call: Call) -> None:
        if call.name in {"__getitem__", "index_select"}:
            self._check_table(call.args[0], "")
        elif call.name == "embedding":
            self._check_table(call.argument(1, "weight"), "")
        elif call.name == "arange":
            result = call.result
            if result.dtype in _HALF and result.numel() > 1:
                self._check(torch.arange(result.numel(), device=result.device), result)
        elif call.name in {"to", "type", "half", "bfloat16"}:
            source = call.args[0]
            if isinstance(source, Tensor) and call.result.dtype in _HALF:
                self._check(source, call.result)
        elif torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            for value in call.args:
                if isinstance(value, Tensor) and value.dtype == torch.float32:
                    half = value.detach().to(call.result.dtype)
                    if half.dtype in _HALF:
                        self._check(value, half)

    def _check(self, source: Tensor, half: Tensor) -> None:
        """Look at whole numbers, most of a range, that were brought to half precision."""
        if source.dtype in _HALF or source.requires_grad or source.dtype == torch.bool:
            return
        if source.numel() < 64 or source.numel() > 1 << 20:
            return
        values = source.detach().flatten()
        low, high = (float(v) for v in values.aminmax())
        if high - low < 256 or (
            source.is_floating_point() and bool((values != values.trunc()).any())
        ):
            return
        distinct = torch.unique(values)
        if distinct.numel() < 0.5 * (high - low + 1):  # not a range of positions
            return
        left = torch.unique(half.detach().flatten().float()).numel()
        if left < 0.95 * distinct.numel():
            self._collided(
                f"{distinct.numel()} positions from {low:.0f} to {high:.0f} become {left} "
                f"different numbers in {str(half.dtype).removeprefix('torch.')}",
                place(),
            )

    def _check_table(self, table: Any, name: str) -> None:
        """Look at a table with a row per position, which may have been made before the run."""
        if not isinstance(table, Tensor) or table.requires_grad or not table.is_floating_point():
            return
        if id(table) in self._checked or table.dim() < 2 or table.numel() > 1 << 24:
            return
        rows = table.detach().reshape(-1, table.shape[-1])
        if rows.shape[0] < 300 or rows.shape[1] < 4 or (table.dim() > 2 and table.shape[-2] < 300):
            return
        if len(self._checked) < 64:
            self._checked[id(table)] = table
        rows = rows[: table.shape[-2]]
        same = (rows[1:] == rows[:-1]).all(dim=1)
        early, late = same[:128], same[255:]
        smooth = bool((rows.abs() <= 1.001).all())
        runs = int((same[1:] & ~same[:-1]).sum())
        if not smooth or bool(early.any()) or float(late.float().mean()) < 0.25 or runs < 8:
            return
        self._collided(
            f"{int(same.sum())} of {rows.shape[0]} rows of the table {name or 'of positions'} "
            f"equal the row before, none of the first 128: it was computed from positions in half "
            "precision",
            name or place(),
        )

    def _collided(self, detail: str, where: str) -> None:
        self._steps.add(self._step)
        self._first = self._first or Finding(
            rule=self.slug,
            step=self._step,
            place=where,
            detail=detail,
            remedy="compute positions and their tables in float32 and convert the result",
            cure=("precision", "fp32"),
        )


class BatchStatisticsOfOne(Rule):
    """A deviation is taken over two values or more."""

    slug: ClassVar[str] = "batch_statistics_of_one"
    watches: ClassVar[frozenset[str]] = frozenset({"std", "var", "std_mean", "var_mean"})

    def __init__(self) -> None:
        self._step = 0
        self._ids: tuple[int, ...] = ()
        self._pending: Finding | None = None
        self._found: Finding | None = None

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        self._step, self._ids, self._pending = step, tuple(ids), None

    def called(self, call: Call) -> None:
        source, result = call.args[0], call.result
        first = result[0] if isinstance(result, tuple) else result
        if not isinstance(source, Tensor) or not isinstance(first, Tensor) or not source.numel():
            return
        if source.numel() != first.numel() or not bool(first.isnan().all()):
            return
        if not bool(torch.isfinite(source).all()):
            return
        self._pending = self._pending or Finding(
            rule=self.slug,
            step=self._step,
            place=place(),
            detail=f"{call.name}() of shape {tuple(source.shape)} is taken over one value, which "
            "gives NaN, and the loss of the batch is not finite",
            remedy="leave the normalisation out for a single value, or drop the last short batch",
            samples=self._ids,
        )

    def backward_begins(self, scalars: Sequence[Tensor]) -> None:
        # A NaN that is only displayed harms nobody.
        bad = any(not bool(torch.isfinite(scalar).all()) for scalar in scalars)
        if self._pending is not None and bad:
            self._found = self._found or self._pending

    def finding(self) -> Finding | None:
        return self._found
