"""Labels and tokens are among those that the model has outputs and embeddings for.

Seen at the functions that use them, whoever wrote the model, and before they raise: classes in
cross_entropy, probabilities in binary_cross_entropy, ids in an embedding (source row B7).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from stabexp.instruments.rule_base import Call, Finding, Rule, place
from stabexp.preflight.inputs import rows_with

_CLASSES = ("cross_entropy", "nll_loss")
_BINARY = ("binary_cross_entropy", "binary_cross_entropy_with_logits")


def _classes_of(logits: Tensor) -> int:
    return logits.shape[1] if logits.dim() > 1 else logits.shape[0]


class LabelRange(Rule):
    """Every label is one of the classes, or the one that the loss is told to ignore."""

    slug: ClassVar[str] = "label_out_of_range"
    watches_before: ClassVar[frozenset[str]] = frozenset({*_CLASSES, *_BINARY})

    def __init__(self) -> None:
        self._step = 0
        self._ids: tuple[int, ...] = ()
        self._found: Finding | None = None

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        self._step, self._ids = step, tuple(ids)

    def calling(self, call: Call) -> None:
        values, target = call.argument(0, "input"), call.argument(1, "target")
        if self._found or not isinstance(values, Tensor) or not isinstance(target, Tensor):
            return
        if call.name in _BINARY:
            self._binary(call, target)
        elif not target.is_floating_point() and values.dim():
            self._classes(call, values, target)

    def _classes(self, call: Call, values: Tensor, target: Tensor) -> None:
        classes = _classes_of(values)
        bad = ((target < 0) | (target >= classes)) & (target != _ignored(call))
        if not int(bad.sum()):
            return
        wrong = target[bad]
        low, high = int(target.min()), int(target.max())
        self._found = Finding(
            rule=self.slug,
            step=self._step,
            place=place(),
            detail=f"{int(bad.sum())} of {target.numel()} labels, for example {int(wrong[0])}, are "
            f"none of the {classes} classes 0 to {classes - 1}; they lie between {low} and {high}",
            remedy="count the classes from 0, or give the model one output per class"
            if high == classes or low == 1
            else "map the labels to 0 … classes - 1, and padding to ignore_index",
            samples=rows_with(bad, self._ids)[:16],
        )

    def _binary(self, call: Call, target: Tensor) -> None:
        bad = (target < 0) | (target > 1)
        if not target.is_floating_point() or not int(bad.sum()):
            return
        self._found = Finding(
            rule=self.slug,
            step=self._step,
            place=place(),
            detail=f"{int(bad.sum())} of {target.numel()} targets of {call.name} lie outside 0 to "
            "1: "
            f"between {float(target.min()):.4g} and {float(target.max()):.4g}",
            remedy="give the probability of the positive class: 0 or 1, not -1 or 255",
            samples=rows_with(bad, self._ids)[:16],
        )

    def finding(self) -> Finding | None:
        return self._found


def _ignored(call: Call) -> int:
    # cross_entropy(input, target, weight, size_average, ignore_index), nll_loss alike
    return int(call.argument(4, "ignore_index", -100))


class TokenRange(Rule):
    """Every token has a row in the embedding."""

    slug: ClassVar[str] = "token_out_of_range"
    watches_before: ClassVar[frozenset[str]] = frozenset({"embedding"})

    def __init__(self) -> None:
        self._step = 0
        self._ids: tuple[int, ...] = ()
        self._found: Finding | None = None

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        self._step, self._ids = step, tuple(ids)

    def calling(self, call: Call) -> None:
        tokens, weight = call.argument(0, "input"), call.argument(1, "weight")
        if self._found or not isinstance(tokens, Tensor) or not isinstance(weight, Tensor):
            return
        bad = (tokens < 0) | (tokens >= weight.shape[0])
        if not tokens.numel() or not int(bad.sum()):
            return
        self._found = Finding(
            rule=self.slug,
            step=self._step,
            place=place(),
            detail=f"{int(bad.sum())} of {tokens.numel()} ids, for example {int(tokens[bad][0])}, "
            "have "
            f"no row in an embedding of {weight.shape[0]}",
            remedy="use the tokenizer the model was made with, or resize its embedding to "
            "len(tokenizer); map padding to an id of its own",
            samples=rows_with(bad, self._ids)[:16],
        )

    def finding(self) -> Finding | None:
        return self._found


class LabelsMixed(Rule):
    """A batch shows several classes, and has something to learn from."""

    slug: ClassVar[str] = "one_class_per_batch"
    watches_before: ClassVar[frozenset[str]] = frozenset(_CLASSES)

    def __init__(self) -> None:
        self._step = 0
        self._seen: list[tuple[int, int, int]] = []
        """Step, number of classes, the first of them."""
        self._empty: tuple[int, str] | None = None
        self._place = ""

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        self._step = step

    def calling(self, call: Call) -> None:
        values, target = call.argument(0, "input"), call.argument(1, "target")
        if not isinstance(values, Tensor) or not isinstance(target, Tensor):
            return
        if target.is_floating_point() or values.dim() < 2:
            return
        counted = target[target != _ignored(call)]
        mean = call.kwargs.get("reduction", "mean") == "mean"
        if target.numel() and not counted.numel() and mean and self._empty is None:
            self._empty = (self._step, place())
        if counted.numel() >= 8 and _classes_of(values) > 1:
            self._place = self._place or place()
            kinds = torch.unique(counted)
            self._seen.append((self._step, len(kinds), int(kinds[0])))

    def finding(self) -> Finding | None:
        if self._empty is not None:
            step, where = self._empty
            return Finding(
                rule="no_target_in_batch",
                step=step,
                place=where,
                detail=f"every target of the batch of step {step} is one that the loss ignores, so "
                "its mean is 0 / 0",
                remedy="leave out samples without a target, or sum the loss and divide by "
                "max(1, targets)",
            )
        alone = [seen for seen in self._seen if seen[1] == 1]
        if len(alone) < max(4, 0.8 * len(self._seen)):
            return None
        classes = sorted({kind for _, _, kind in alone})
        several = f"one class in each batch, {len(classes)} in all"
        return Finding(
            rule=self.slug,
            step=alone[0][0],
            place=self._place,
            detail=f"{len(alone)} of {len(self._seen)} batches showed "
            + (f"class {classes[0]} only" if len(classes) == 1 else several),
            remedy="shuffle the data: it comes sorted by label",
            strength="suspicious",
        )
