"""Plain figures of single samples: range, size, label, what is equal to it and what is near.

They are all that has to leave the process that can read the data, so that samples can be described
where there is neither torch nor the dataset.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from numbers import Number
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

NEAREST = 10
"""Neighbours by content that are looked at."""
LABELS = {"label", "labels", "target", "targets", "y", "class"}
"""Names of a field that is a label wherever it is; else the only whole number is one."""


def figures(dataset: Any, ids: Sequence[int], *, pool: Sequence[int] = ()) -> list[dict[str, Any]]:
    """Return what a few samples look like, JSON-ready, in the order of `ids`.

    Args:
        dataset: Map-style; samples are tensors, numbers and texts, or tuples, lists and dicts of
            them. Reading one may draw from the random streams: keep them apart.
        ids: Samples to describe.
        pool: Samples to compare them with, a thousand or so; one of `ids` is not its own company.

    Returns:
        Per sample: id, label (None without one), fields (name, shape, whole, size, distinct,
        nonfinite, and over the finite values low, high, mean, std, None when there are none),
        twins (pool ids with the same input), twin_labels, nearest_labels (labels of up to ten pool
        samples whose input points in nearly the same direction, nearest first), label_count and
        pool_labels (how often the label comes in the pool, itself left out, and how many
        different ones do).
    """
    known = {i: _Sample(dataset[i]) for i in dict.fromkeys([*ids, *pool])}
    labels = Counter(known[i].label for i in dict.fromkeys(pool))
    vectors = {i: known[i].vector for i in dict.fromkeys(pool)}
    found = []
    for i in ids:
        sample = known[i]
        twins = [j for j in vectors if j != i and known[j].input_hash == sample.input_hash]
        nearest = _nearest(sample.vector, {j: v for j, v in vectors.items() if j != i})
        found.append(
            {
                "id": int(i),
                "label": sample.label,
                "fields": [_field(name, value) for name, value in sample.parts],
                "twins": twins,
                "twin_labels": [known[j].label for j in twins],
                "nearest_labels": [known[j].label for j in nearest],
                "label_count": labels[sample.label] - (i in vectors),
                "pool_labels": len(labels),
            }
        )
    return found


class _Sample:
    def __init__(self, sample: Any) -> None:
        self.parts = list(_parts(sample, ""))
        named = [n for n, v in self.parts if n.rpartition(".")[2] in LABELS and _whole_number(v)]
        single = [name for name, value in self.parts if _whole_number(value)]
        own = named[0] if named else single[0] if len(single) == 1 else None
        self.label = next((int(v.item()) for n, v in self.parts if n == own), None)
        digest = hashlib.sha256()
        for name, value in self.parts:
            if name != own:
                digest.update(f"{name}{value.dtype}{tuple(value.shape)}".encode())
                flat = value.contiguous().reshape(-1)
                digest.update(flat.view(torch.uint8).numpy().tobytes())
        self.input_hash = digest.hexdigest()
        real = [value for _, value in self.parts if value.is_floating_point()]
        largest = max(real, key=lambda value: value.numel(), default=torch.zeros(0))
        self.vector = torch.nan_to_num(largest.double().flatten(), 0.0, 0.0, 0.0)


def _parts(value: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor in a sample with its dotted name; what is neither is left out."""
    if isinstance(value, Tensor):
        yield name or "value", value.detach().cpu()
    elif isinstance(value, str):
        codes = [ord(letter) for letter in value]
        yield name or "text", torch.tensor(codes, dtype=torch.long)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _parts(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)):
        if value and all(isinstance(inner, Number) for inner in value):
            yield name or "value", torch.as_tensor(value)
            return
        names = getattr(value, "_fields", range(len(value)))
        for key, inner in zip(names, value, strict=True):
            yield from _parts(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, Number) or hasattr(value, "__array__"):
        yield name or "value", torch.as_tensor(value).cpu()


def _whole_number(value: Tensor) -> bool:
    return value.numel() == 1 and not value.is_floating_point() and not value.is_complex()


def _field(name: str, value: Tensor) -> dict[str, Any]:
    flat = value.flatten()
    exact = flat.abs() if flat.is_complex() else flat
    real = exact.double()
    finite = real[torch.isfinite(real)]
    none = finite.numel() == 0
    return {
        "name": name,
        "shape": list(value.shape),
        "whole": not value.is_floating_point() and not value.is_complex(),
        "size": value.numel(),
        "distinct": torch.unique(exact).numel(),
        "nonfinite": int(real.numel() - finite.numel()),
        "low": None if none else float(finite.min()),
        "high": None if none else float(finite.max()),
        "mean": None if none else _finite(finite.mean()),
        "std": None if none else _finite(finite.std(correction=0)),
    }


def _finite(value: Tensor) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def _nearest(vector: Tensor, others: Mapping[int, Tensor]) -> list[int]:
    """Return those whose direction is closest: a sample that is only far too large keeps its own.

    Empty for a sample that is all zero, which has no direction.
    """
    same = [i for i, other in others.items() if other.shape == vector.shape]
    if not same or not vector.any():
        return []
    stacked = torch.stack([others[i] for i in same])
    closeness = F.cosine_similarity(stacked, vector[None], dim=1)
    order = closeness.argsort(descending=True, stable=True)[:NEAREST].tolist()
    return [same[i] for i in order]
