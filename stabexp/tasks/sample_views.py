"""Samples as people can look at them, and what sets those at fault apart from ordinary ones.

The figures of a part are compared with those of the same part of ordinary samples of the same run:
what is usual is a matter of the data, not of a table of limits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stabexp.records import SamplePart, SampleView
from stabexp.state.random_streams import isolated_streams
from stabexp.tasks.sample_parts import IGNORED, Decode, Measured, measured_parts, not_shown, short

FAR = 10.0
"""Times the usual from which a value or a length is unusual."""
SHOWN_BESIDE = 2
"""Ordinary samples that are kept beside those at fault."""


@dataclass(frozen=True, kw_only=True)
class Showing:
    """How samples of a training are shown."""

    show: Callable[[Any], Any] | None = None
    """Sample → a text, a picture or a mapping of them; None, also returned, shows what is there."""
    decode: Decode | None = None
    """The text of token ids, where the training has a tokenizer."""


def sample_views(
    read: Callable[[int], Any],
    suspects: Sequence[int],
    *,
    ordinary: Sequence[int] = (),
    showing: Showing | None = None,
    first_steps: Mapping[int, int] | None = None,
) -> tuple[SampleView, ...]:
    """Return the suspects, and two ordinary samples beside them, as people can look at them.

    Nothing here raises: a sample that cannot be read or shown says why. The random streams are
    left as they were.

    Args:
        read: Id → sample: a dataset's `__getitem__`.
        suspects: Ids of samples that may be at fault.
        ordinary: Ids of samples to compare them with, a dozen or so.
        showing: How the training wants its samples shown.
        first_steps: Id → the first step of the run that used the sample.
    """
    showing = showing or Showing()
    steps = first_steps or {}
    with isolated_streams():
        beside = [
            (number, _measured(read, number, showing))
            for number in dict.fromkeys(ordinary)
            if number not in suspects
        ]
        named = [(number, _measured(read, number, showing)) for number in dict.fromkeys(suspects)]
    usual = [parts for _, parts in beside if any(m.part.kind != "unknown" for m in parts)]
    found = [
        SampleView(
            sample=int(number),
            blamed=True,
            parts=tuple(_marked(measured, usual) for measured in parts),
            step=steps.get(number),
        )
        for number, parts in named
    ]
    found += [
        SampleView(
            sample=int(number),
            blamed=False,
            parts=tuple(measured.part for measured in parts),
            step=steps.get(number),
        )
        for number, parts in beside[:SHOWN_BESIDE]
    ]
    return tuple(found)


def _measured(read: Callable[[int], Any], number: int, showing: Showing) -> list[Measured]:
    """Return the parts of a sample, as its user shows it where there is a way of their own."""
    try:
        sample = read(number)
    except Exception as error:  # reading runs the user's code
        return [Measured(part=not_shown("", error))]
    told: list[Measured] = []
    if showing.show is not None:
        try:
            shown = showing.show(sample)
        except Exception as error:
            told = [Measured(part=not_shown("show", error))]
        else:
            if shown is not None:
                return measured_parts(shown, decode=showing.decode)
    return told + measured_parts(sample, decode=showing.decode)


def _marked(measured: Measured, usual: Sequence[Sequence[Measured]]) -> SamplePart:
    """Return a part with what sets it apart from the same part of ordinary samples."""
    same = [
        other for parts in usual for other in parts if other.part.name == measured.part.name
    ] or [other for parts in usual for other in parts if _alike(measured, other)]
    told = "; ".join(unusual(measured, same))
    return dataclasses.replace(measured.part, unusual=told)


def _alike(one: Measured, other: Measured) -> bool:
    """Whether two parts of different names are rows of the same part of batches."""
    names = [part.part.name.partition(" · ") for part in (one, other)]
    return all(row.startswith("row ") for row, _, _ in names) and names[0][2] == names[1][2]


def unusual(one: Measured, others: Sequence[Measured]) -> Iterator[str]:
    """Yield in what a part differs from the same part of ordinary samples, the gravest first."""
    others = [other for other in others if other.part.kind != "unknown"]
    if one.part.kind == "unknown":
        return
    if one.size == 0 or (one.part.kind == "text" and not one.whole and not one.part.text.strip()):
        if not others or any(other.size for other in others):
            yield "empty" if one.size == 0 else "nothing but spaces"
        return
    if one.nans + one.infinite > max((o.nans + o.infinite for o in others), default=0):
        yield _not_finite(one)
    if one.size == one.nans + one.infinite:
        return
    if one.ignored == one.size and (not others or min(o.ignored / o.size for o in others) < 1):
        yield f"all {one.size} labels are ignored ({IGNORED})"
        return
    if 10 * one.unprintable > one.size and _share(others) < 0.1:
        yield f"{one.unprintable} of {one.size} characters are no text"
    if not others:
        return
    if one.size > 1 and one.distinct == 1 and min(o.distinct for o in others) > 1:
        yield f"every {_noun(one)} is {_only(one)}"
    else:
        yield from _out_of_range(one, others)
    yield from _length(one, others)


def _not_finite(one: Measured) -> str:
    words = [
        f"{count} {'is' if count == 1 else 'are'} {what}"
        for count, what in ((one.nans, "NaN"), (one.infinite, "infinite"))
        if count
    ]
    if one.size == 1:
        return "NaN" if one.nans else "infinite"
    if len(words) == 1:
        count = one.nans or one.infinite
        what = "NaN" if one.nans else "infinite"
        number = f"all {one.size}" if count == one.size else f"{count} of {one.size}"
        return f"{number} values {'is' if count == 1 else 'are'} {what}"
    return f"of {one.size} values {' and '.join(words)}"


def _share(others: Sequence[Measured]) -> float:
    return max((o.unprintable / o.size for o in others if o.size), default=0.0)


def _noun(one: Measured) -> str:
    if one.part.kind == "text" and not one.whole:
        return "character"
    return "token" if one.part.kind == "text" else "value"


def _only(one: Measured) -> str:
    if one.part.kind == "text" and not one.whole:
        return repr(one.part.text[:1])
    return short(one.part.values[0]) if one.part.values else short(one.low)


def _out_of_range(one: Measured, others: Sequence[Measured]) -> Iterator[str]:
    if one.part.kind == "text":
        return
    usual = max(o.largest for o in others)
    least = min(o.largest for o in others)
    known = [o.low for o in others if o.low == o.low]
    if one.whole and one.size == 1:
        if known and one.low < 0 <= min(known):
            yield f"{short(one.low)}, where others are {short(min(known))} and more"
        elif one.largest > FAR * max(usual, 1.0):
            yield f"{short(one.low)}, where others reach {short(usual)}"
    elif one.largest > FAR * usual and (usual or one.size > 1):
        times = f"{_times(one.largest / usual)} × the usual {short(usual)}" if usual else ""
        yield f"values up to {short(one.largest)}, {times or 'usually 0'}"
    elif FAR**2 * one.largest < least and not one.whole:
        yield f"values only up to {short(one.largest)}, usually {short(least)} and more"


def _times(ratio: float) -> str:
    """Return a ratio in two digits: "13", "1,000", "2.1e+09"."""
    return f"{float(f'{ratio:.2g}'):,.0f}" if ratio < 1e7 else f"{ratio:.2g}"


def _length(one: Measured, others: Sequence[Measured]) -> Iterator[str]:
    sizes = sorted(o.size for o in others)
    noun = f"{_noun(one)}s"
    usual = str(sizes[0]) if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"
    far = FAR / 2 if one.part.kind == "text" else 2.0
    if one.size > far * sizes[-1]:
        yield f"{one.size:,} {noun}, usually {usual}"
    elif far * one.size < sizes[0]:
        yield f"only {one.size:,} {noun}, usually {usual}"
