"""Says in plain sentences what sets the culprits apart from samples that did no harm.

An id alone does not tell anybody what to repair. Often one look does: values a thousand times too
large, a label that all similar samples contradict, nothing but padding, the same input twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

RANGE_FACTOR = 10.0
"""Values this many times beyond all neighbours' are out of range."""
MAJORITY = 0.7
"""Share of the nearest samples that must agree on another label to contradict one."""
RARE_POOL = 50
"""Samples per label in the pool, on average, from which on a label that none has is odd."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldFigures:
    """One tensor of a sample; the figures are over its finite values, None when there are none."""

    name: str
    shape: tuple[int, ...]
    whole: bool
    """Whether it holds integers or truth values."""
    size: int
    distinct: int
    nonfinite: int
    low: float | None
    high: float | None
    mean: float | None = None
    std: float | None = None

    @property
    def reach(self) -> float:
        """Largest absolute value, 0.0 when there is none."""
        return max(abs(self.low or 0.0), abs(self.high or 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleFigures:
    """One sample, as `tasks.sample_figures.figures` describes it."""

    id: int
    fields: tuple[FieldFigures, ...]
    label: int | None = None
    twins: tuple[int, ...] = ()
    """Other samples with the same input."""
    twin_labels: tuple[int | None, ...] = ()
    nearest_labels: tuple[int | None, ...] = ()
    """Labels of the samples most like it, nearest first."""
    label_count: int = 0
    """How often its label comes in the pool it was compared with, itself left out."""
    pool_labels: int = 0
    """How many different labels that pool has."""


def look(
    culprits: Sequence[SampleFigures], neighbours: Sequence[SampleFigures], *, pool: int = 0
) -> tuple[str, ...]:
    """Return one sentence for each way in which a culprit differs, in the order of the culprits.

    Args:
        culprits: What to describe.
        neighbours: Samples that did no harm, sixteen or so.
        pool: How many samples the labels were counted over.
    """
    return tuple(chain.from_iterable(_sentences(one, neighbours, pool) for one in culprits))


def _sentences(
    sample: SampleFigures, neighbours: Sequence[SampleFigures], pool: int
) -> Iterator[str]:
    others = [other for other in neighbours if other.id != sample.id]
    found = [
        sentence
        for field in sample.fields
        for sentence in _about_field(
            field, [same for other in others for same in other.fields if same.name == field.name]
        )
    ]
    found += _about_label(sample, others, pool)
    found += _about_twins(sample)
    if not found:
        found = [f"nothing sets it apart from {len(others)} samples that did no harm"]
    for sentence in found:
        yield f"sample {sample.id}: {sentence}"


def _about_field(field: FieldFigures, others: Sequence[FieldFigures]) -> Iterator[str]:
    where = "" if field.name in {"value", "text", "0"} else f" in {field.name}"
    if field.size == 0:
        if any(other.size for other in others):
            yield f"empty{where}"
        return
    if field.nonfinite > max((other.nonfinite for other in others), default=0):
        what = "all" if field.nonfinite == field.size else f"{field.nonfinite} of {field.size}"
        yield f"{what} values{where} are NaN or infinite"
    if not others or field.nonfinite == field.size:
        return
    sizes = sorted(other.size for other in others)
    if field.size > 2 * sizes[-1] or 2 * field.size < sizes[0]:
        usual = f"{sizes[0]}" if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"
        yield f"{field.size} values{where} where neighbours have {usual}"
    if field.size > 1 and field.distinct == 1 and min(other.distinct for other in others) > 1:
        padding = "all padding: every token" if field.whole else "every value"
        yield f"{padding}{where} is {_short(field.high)}"
        return
    reach = max(other.reach for other in others)
    if field.reach > RANGE_FACTOR * reach and (not field.whole or field.size > 1):
        usual = f"neighbours stay below {_above(reach)}"
        yield f"values up to {_short(field.reach)}{where} where {usual}"
    least = min(other.reach for other in others)
    if not field.whole and field.nonfinite < field.size and RANGE_FACTOR**2 * field.reach < least:
        usual = f"neighbours reach {_short(least)}"
        yield f"values only up to {_short(field.reach)}{where} where {usual}"


def _about_label(
    sample: SampleFigures, others: Sequence[SampleFigures], pool: int
) -> Iterator[str]:
    label = sample.label
    if label is None:
        return
    known = [other.label for other in others if other.label is not None]
    known += [near for near in sample.nearest_labels if near is not None]
    if known and label < 0 <= min(known):
        yield f"label {label} where neighbours' are {min(known)} and more"
    elif sample.label_count == 0 and 0 < RARE_POOL * sample.pool_labels <= pool:
        yield f"label {label}, which none of {pool} others has"
    near = Counter(other for other in sample.nearest_labels if other is not None)
    if near:
        most, count = near.most_common(1)[0]
        if most != label and count >= MAJORITY * near.total():
            yield f"label {label}, but {count} of its {near.total()} nearest samples say {most}"


def _about_twins(sample: SampleFigures) -> Iterator[str]:
    if not sample.twins:
        return
    pairs = zip(sample.twins, sample.twin_labels, strict=True)
    contrary = [(twin, label) for twin, label in pairs if label != sample.label]
    if contrary:
        twin, label = contrary[0]
        yield f"the same input as sample {twin}, but label {sample.label} instead of {label}"
    else:
        more = f" and {len(sample.twins) - 1} more" if len(sample.twins) > 1 else ""
        yield f"exact duplicate of sample {sample.twins[0]}{more}"


def _short(value: float | None) -> str:
    """Return "2.3e+04", "0.5", "16": two significant digits, whole numbers whole."""
    if value is None:
        return "not finite"
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.2g}"


def _above(value: float) -> str:
    """Return a round figure that is not below the value."""
    for text in (f"{value:.2g}", f"{1.05 * value:.2g}", f"{1.1 * value:.2g}"):
        if float(text) > value:
            return text
    return f"{value + 1:.0f}"
