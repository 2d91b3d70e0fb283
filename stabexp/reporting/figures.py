"""Which curves a report draws over each other, in which window of steps, with which markers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stabexp.records import StepRecord, TrialRecord, Verdict
from stabexp.reporting import words
from stabexp.reporting.chart import Marker, line_chart
from stabexp.reporting.curve import Curve

_LAYERS = ("placebo", "inconclusive", "diverged", "delayed", "stalled", "cured", "control")
"""Kinds of curve from the bottom of the picture to the top; the run lies below them all."""

_FIELDS = (("loss", "Loss", "loss"), ("grad_norm", "Gradient norm", "L2 norm"))
_SIZES = (("wide", 1040, 400, 600), ("narrow", 380, 360, 240))


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One chart, drawn for wide and for narrow screens."""

    title: str
    caption: str
    wide: str
    narrow: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LegendEntry:
    """One line of the legend."""

    key: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    key: str
    label: str
    name: str
    kind: str
    steps: Sequence[StepRecord]


def kind_of(record: TrialRecord) -> str:
    """Return the style of a trial's curve: its role when that says more than its outcome."""
    role = record.spec.role
    return role if role in {"control", "placebo"} else record.outcome


def legend(trials: Sequence[TrialRecord], steps: Mapping[str, object]) -> list[LegendEntry]:
    """Return an entry for the run and for each trial that has step records."""
    entries = [LegendEntry(key="run", kind="run", text="the diverged run")]
    for record in words.ordered(trials):
        if steps.get(record.spec.key):
            entries.append(
                LegendEntry(key=record.spec.key, kind=kind_of(record), text=_name(record))
            )
    return entries


def window(verdict: Verdict, trials: Sequence[TrialRecord]) -> tuple[int, int]:
    """Return the first and last step worth showing: the replays, and some of the run before.

    Trials that start anew, and proofs that go on for long, are shown in part.
    """
    forks = [r for r in trials if r.spec.role not in {"proof", "scan"} and r.steps > 0]
    last = max([verdict.divergence.detected, *(record.last_step for record in forks)]) + 1
    return max(0, verdict.good_step - max(5, (last - verdict.good_step) // 3)), last


def figures(
    verdict: Verdict,
    trials: Sequence[TrialRecord],
    *,
    steps: Sequence[StepRecord],
    trial_steps: Mapping[str, Sequence[StepRecord]],
) -> list[Figure]:
    """Return the loss and the gradient norm of the run and of every trial, over the steps."""
    drawn = sorted(
        (record for record in words.ordered(trials) if trial_steps.get(record.spec.key)),
        key=lambda record: _LAYERS.index(kind_of(record)),
    )
    sources = [_Source(key="run", label="", name="the diverged run", kind="run", steps=steps)]
    sources += [
        _Source(
            key=record.spec.key,
            label=words.label(record),
            name=_name(record),
            kind=kind_of(record),
            steps=trial_steps[record.spec.key],
        )
        for record in drawn
    ]
    shown = window(verdict, trials)
    markers = _markers(verdict, trials)
    return [
        Figure(
            title=title,
            caption=_caption(trials, shown),
            **{
                size: line_chart(
                    [_curve(source, field) for source in sources],
                    name=f"{field.replace('_', '-')}-{size}",
                    title=f"{title} of the run and its trials",
                    description=_description(title, shown, drawn),
                    y_label=unit,
                    markers=markers,
                    steps=shown,
                    width=width,
                    height=height,
                    most_points=most,
                )
                for size, width, height, most in _SIZES
            },
        )
        for field, title, unit in _FIELDS
    ]


def _curve(source: _Source, field: str) -> Curve:
    values = [(record.step, float(getattr(record, field))) for record in source.steps]
    return Curve(
        key=source.key,
        label=source.label,
        title=_title(source.name, values),
        kind=source.kind,
        points=values,
    )


def _title(name: str, values: Sequence[tuple[int, float]]) -> str:
    if not values:
        return name
    (first, start), (last, end) = values[0], values[-1]
    text = f"{name}: {words.figure(start)} at step {first:,}, {words.figure(end)} at step {last:,}"
    broken = next((step for step, value in values if not math.isfinite(value)), None)
    return text if broken is None else f"{text}; not finite from step {broken:,}"


def _name(record: TrialRecord) -> str:
    role = "" if record.spec.role == "dose" else f"{record.spec.role}, "
    return f"{words.label(record)} {role}{words.change(record)}, {record.outcome}"


def _markers(verdict: Verdict, trials: Sequence[TrialRecord]) -> list[Marker]:
    found = verdict.divergence
    markers = [
        Marker(step=verdict.good_step, label="last good checkpoint", kind="good"),
        Marker(step=found.onset, label="onset", kind="onset"),
        Marker(step=found.detected, label="detected", kind="detected"),
    ]
    ends = [record.spec.until_step for record in trials if record.spec.role != "proof"]
    if ends:
        markers.append(Marker(step=max(ends), label="horizon", kind="horizon"))
    return markers


def _description(title: str, shown: tuple[int, int], drawn: Sequence[TrialRecord]) -> str:
    text = f"{title} per step, steps {shown[0]:,} to {shown[1]:,}, for the run and "
    text += words.count(len(drawn), "trial") + "."
    for kind in reversed(_LAYERS):
        names = [words.label(record) for record in drawn if kind_of(record) == kind]
        if names:
            text += f" {kind.capitalize()}: {', '.join(names)}."
    return text + " The table of trials has the figures."


def _caption(trials: Sequence[TrialRecord], shown: tuple[int, int]) -> str:
    beyond = [
        f"{words.label(record)} (steps {record.spec.from_step:,} to {record.last_step:,})"
        for record in words.ordered(trials)
        if record.steps > 0 and (record.spec.from_step < shown[0] or record.last_step > shown[1])
    ]
    text = "× marks the first value that is NaN or infinite; ▲ is where a curve leaves the axis."
    return f"{text} Only in part: {', '.join(beyond)}." if beyond else text
