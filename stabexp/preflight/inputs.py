"""What enters the model is a number, in a range that its first layer can take.

Statistics of the first batches are compared with what the first layer they meet expects, not with
a list of data sets: bytes that were never divided, columns in other units (source rows B7, A19).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from stabexp.instruments.base import Watched
from stabexp.instruments.rule_base import Call, Finding, Rule, place, tensors

WIDE = 10.0
"""Mean or deviation of an input from which on it should have been scaled."""
UNEVEN = 100.0
"""A column's deviation over the usual one, above which it is in another unit."""
ENOUGH = 64
"""Samples from which on a column that never changes says something."""


def rows_with(bad: Tensor, ids: Sequence[int]) -> tuple[int, ...]:
    """Return the ids of the samples in whose rows `bad`, of shape (n, …), is true."""
    if not bad.dim() or bad.shape[0] != len(ids):
        return ()
    rows = bad.flatten(1).any(1) if bad.dim() > 1 else bad
    return tuple(ids[row] for row in rows.nonzero().flatten().tolist())


class InputNotFinite(Rule):
    """No NaN or Inf comes with the data and reaches the loss; a masked one does not."""

    slug: ClassVar[str] = "input_not_finite"

    def __init__(self) -> None:
        self._open: Finding | None = None
        self._found: Finding | None = None
        self._parameters: list[Tensor] = []

    def attach(self, watched: Watched) -> None:
        self._parameters = [p for group in watched.optimizer.param_groups for p in group["params"]]

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        self._open = None
        for number, tensor in enumerate(tensors(batch)):
            if self._found or not tensor.is_floating_point():
                continue
            bad = ~torch.isfinite(tensor)
            if count := int(bad.sum()):
                samples = rows_with(bad, ids)
                self._open = Finding(
                    rule=self.slug,
                    step=step,
                    place=f"batch of step {step}, tensor {number}",
                    detail=f"{count} of {tensor.numel()} values are NaN or infinite"
                    + (f", in {len(samples)} of {len(ids)} samples" if samples else "")
                    + ", and with them the loss",
                    remedy="drop or impute these values before training",
                    samples=samples[:16],
                )
                return

    def logged(self, loss: Tensor) -> None:
        if not bool(torch.isfinite(loss).all()):
            self._found = self._found or self._open

    def backward_ends(self) -> None:
        grads = [p.grad for p in self._parameters if p.grad is not None]
        if self._open and not all(bool(torch.isfinite(grad).all()) for grad in grads):
            self._found = self._found or self._open

    def finding(self) -> Finding | None:
        return self._found


_FIRST = frozenset(
    {"linear", "matmul", "__matmul__", "addmm", "mm", "bmm", "conv1d", "conv2d", "conv3d"}
    | {"lstm", "gru", "rnn_tanh", "rnn_relu", "batch_norm", "layer_norm", "group_norm"}
    | {"instance_norm", "rms_norm"}
)


class FirstLayer(Rule):
    """Sees what enters the first layer of every batch that has parameters."""

    watches: ClassVar[frozenset[str]] = _FIRST

    def __init__(self) -> None:
        self._due = False
        self._step = 0
        self._ids: tuple[int, ...] = ()

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        self._step, self._due, self._ids = step, True, tuple(ids)

    def called(self, call: Call) -> None:
        x = call.args[0] if call.args else call.kwargs.get("input")
        made = call.result[0] if isinstance(call.result, tuple) else call.result
        if not self._due or not isinstance(x, Tensor) or not isinstance(made, Tensor):
            return
        if not made.requires_grad or x.requires_grad or not x.is_floating_point():
            return
        self._due = False
        if "norm" not in call.name and x.numel() > 1 and bool(torch.isfinite(x).all()):
            self.enters(x.detach())

    def enters(self, x: Tensor) -> None:
        """The input of the first layer, finite, not normalised by that layer."""


class InputRange(FirstLayer):
    """What enters the first layer has mean and deviation of about 1."""

    slug: ClassVar[str] = "input_range"

    def __init__(self) -> None:
        super().__init__()
        self._seen: list[tuple[int, float, float, bool, str]] = []
        self._batches = 0

    def enters(self, x: Tensor) -> None:
        self._batches += 1
        wide = x.double()
        mean, deviation = float(wide.mean()), float(wide.std())
        if abs(mean) > WIDE or deviation > WIDE:
            low, high = float(wide.min()), float(wide.max())
            whole = low >= 0 and 32 < high <= 255 and bool((wide == wide.round()).all())
            self._seen.append((self._step, mean, deviation, whole, place()))

    def finding(self) -> Finding | None:
        if not self._seen or 2 * len(self._seen) < self._batches:
            return None
        step, mean, deviation, _, where = self._seen[0]
        whole = all(seen[3] for seen in self._seen)
        detail = (
            f"the input of the first layer has mean {mean:.4g} and deviation {deviation:.4g}, in "
            f"{len(self._seen)} of {self._batches} batches"
        )
        if whole:
            return Finding(
                rule="raw_bytes",
                step=step,
                place=where,
                detail=f"{detail}: whole numbers between 0 and 255",
                remedy="divide by 255 and standardise with the mean and deviation that the model "
                "was trained with",
            )
        return Finding(
            rule=self.slug,
            step=step,
            place=where,
            detail=detail,
            remedy="standardise the features with figures of the training data",
            strength="suspicious",
        )


class Columns(FirstLayer):
    """The columns of a table are in comparable units, and none is stuck."""

    slug: ClassVar[str] = "columns_of_different_scale"

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[Tensor] = []
        self._tables: set[torch.Size] = set()
        self._count = 0
        self._place = ""

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        super().batch_begins(step, ids, batch)
        self._tables = {t.shape for t in tensors(batch) if t.dim() == 2}

    def enters(self, x: Tensor) -> None:
        # A table came as one: flattened pixels have backgrounds, which are no columns.
        if x.shape not in self._tables or x.shape[1] < 2 or self._count >= 4096:
            return
        if not self._rows or self._rows[0].shape[1] == x.shape[1]:
            self._rows.append(x.double().cpu())
            self._count += len(x)
            self._place = self._place or place()

    def finding(self) -> Finding | None:
        if self._count < ENOUGH:
            return None
        table = torch.cat(self._rows)
        return self._uneven(table) or self._stuck(table)

    def _uneven(self, table: Tensor) -> Finding | None:
        deviations = table.std(0)
        moving = deviations[deviations > 0]
        if len(moving) < 3:
            return None
        usual, column = float(moving.median()), int(deviations.argmax())
        widest = float(deviations[column])
        if widest < UNEVEN * usual or widest < WIDE:
            return None
        return Finding(
            rule=self.slug,
            step=0,
            place=f"column {column} of the input, at {self._place}",
            detail=f"column {column} has deviation {widest:.4g}, the usual one of "
            f"{table.shape[1]} columns is {usual:.4g}",
            remedy="standardise every column with its own mean and deviation",
            strength="suspicious",
        )

    def _stuck(self, table: Tensor) -> Finding | None:
        same = (table == table[0]).all(0)
        # Zero is an unused column, one a bias, and what other columns often hold a background.
        odd = same & (table[0].abs() != 1) & (table[0].abs() > 1e-3)
        for column in odd.nonzero().flatten().tolist():
            held = (table == table[0, column]).double().mean(0)
            odd[column] = float(held.sum() - held[column]) < 0.01 * table.shape[1]
        if not int(odd.sum()) or bool(same.all()):
            return None
        column = int(odd.nonzero()[0])
        return Finding(
            rule="stuck_column",
            step=0,
            place=f"column {column} of the input, at {self._place}",
            detail=f"column {column} is {float(table[0, column]):.6g} in all of {len(table)} "
            "samples "
            f"({int(odd.sum())} of {table.shape[1]} columns are stuck so)",
            remedy="look for a stuck sensor, a default value or a join that failed; drop the "
            "column",
            strength="suspicious",
        )
