"""Which curves a report draws over each other, in which window of steps, with which markers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stabexp.records import Cure, StepRecord, TrialRecord, Verdict
from stabexp.reporting import words
from stabexp.reporting.chart import Marker, line_chart
from stabexp.reporting.curve import Curve, condense

_LAYERS = ("placebo", "inconclusive", "diverged", "delayed", "stalled", "cured", "control")
"""Kinds of curve from the bottom of the picture to the top; the run lies below them all."""

_FIELDS = (("loss", "Loss", "loss"), ("grad_norm", "Gradient norm", "L2 norm"))
_SIZES = (("wide", 1040, 400, 600), ("narrow", 380, 360, 240))

MOST_CURVES = 48
"""Trials drawn at most; more curves over each other tell nothing, and make the page slow."""
MOST_CORNERS = 18_000
"""Corners of all curves of one picture, at most; each keeps its highs and lows."""

_GROUPS: tuple[tuple[str, frozenset[str]], ...] = (
    ("Control and placebo", frozenset({"control", "placebo"})),
    ("Doses", frozenset({"dose"})),
    ("Suspects taken away", frozenset({"data", "test"})),
    ("The answer put to the test", frozenset({"reversal", "proof"})),
    ("By hand", frozenset({"manual"})),
)


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
class LegendGroup:
    """Entries of trials that were made for the same reason."""

    name: str
    entries: tuple[LegendEntry, ...]


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


def drawn_trials(
    verdict: Verdict, trials: Sequence[TrialRecord], steps: Mapping[str, Sequence[StepRecord]]
) -> list[TrialRecord]:
    """Return the trials that get a curve, in order: of very many, those that decide."""
    found = [
        record
        for record in words.ordered(trials)
        if record.spec.role != "scan" and steps.get(record.spec.key)
    ]
    if len(found) <= MOST_CURVES:
        return found
    bounds = {(cure.variable, dose) for cure in verdict.cures for dose in _bounds(cure)}

    def rank(record: TrialRecord) -> int:
        if record.spec.role in {"control", "placebo", "reversal", "proof"}:
            return 0
        return 1 if (record.spec.variable, record.spec.dose) in bounds else 2

    kept = sorted(found, key=rank)[:MOST_CURVES]  # a stable sort: of equals, the earlier
    return words.ordered(kept)


def _bounds(cure: Cure) -> tuple[float | int | str | None, ...]:
    return (cure.dose, cure.milder_dose, cure.stronger_dose)


def legend(drawn: Sequence[TrialRecord]) -> list[LegendGroup]:
    """Return an entry for the run and for each trial that is drawn, by what they were made for."""
    groups = [
        LegendGroup(
            name="The run", entries=(LegendEntry(key="run", kind="run", text="the diverged run"),)
        )
    ]
    for name, roles in _GROUPS:
        entries = tuple(
            LegendEntry(key=record.spec.key, kind=kind_of(record), text=_name(record))
            for record in drawn
            if record.spec.role in roles
        )
        if entries:
            groups.append(LegendGroup(name=name, entries=entries))
    return groups


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
    chosen = drawn_trials(verdict, trials, trial_steps)
    drawn = sorted(chosen, key=lambda record: _LAYERS.index(kind_of(record)))
    sources = [_run_source(steps), *(_source(r, trial_steps[r.spec.key]) for r in drawn)]
    shown = window(verdict, trials)
    markers = _markers(verdict, trials)
    corners = max(120, MOST_CORNERS // len(sources))
    longest = max(
        sum(shown[0] <= record.step <= shown[1] for record in source.steps) for source in sources
    )
    caption = _caption(
        trials, chosen, shown, most=min(corners, _SIZES[0][3]), longest=longest, steps=trial_steps
    )
    found = []
    for field, title, unit in _FIELDS:
        curves = [_curve(source, field, shown) for source in sources]
        drawings = {
            size: line_chart(
                curves,
                name=f"{field.replace('_', '-')}-{size}",
                title=f"{title} of the run and its trials",
                description=_description(title, shown, drawn),
                y_label=unit,
                markers=markers,
                steps=shown,
                width=width,
                height=height,
                most_points=min(most, corners),
            )
            for size, width, height, most in _SIZES
        }
        found.append(Figure(title=title, caption=caption, **drawings))
    return found


def _curve(source: _Source, field: str, shown: tuple[int, int]) -> Curve:
    values = [(record.step, float(getattr(record, field))) for record in source.steps]
    return Curve(
        key=source.key,
        label=source.label,
        title=_title(source.name, values),
        kind=source.kind,
        points=condense([value for value in values if shown[0] <= value[0] <= shown[1]]),
    )


def run_curve(steps: Sequence[StepRecord], field: str, shown: tuple[int, int]) -> Curve:
    """Return the diverged run's curve of a field, in a window of steps."""
    return _curve(_run_source(steps), field, shown)


def trial_curve(
    record: TrialRecord, steps: Sequence[StepRecord], field: str, shown: tuple[int, int]
) -> Curve:
    """Return one trial's curve of a field, in a window of steps."""
    return _curve(_source(record, steps), field, shown)


def _run_source(steps: Sequence[StepRecord]) -> _Source:
    return _Source(key="run", label="", name="the diverged run", kind="run", steps=steps)


def _source(record: TrialRecord, steps: Sequence[StepRecord]) -> _Source:
    return _Source(
        key=record.spec.key,
        label=words.label(record),
        name=_name(record),
        kind=kind_of(record),
        steps=steps,
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
    for roles in ({"dose", "test", "data"}, {"placebo"}):
        # A ramp is given longer, from step 0: its horizon is not that of the others.
        ends = [
            record.spec.until_step
            for record in trials
            if record.spec.role in roles and record.spec.variable != "warmup"
        ]
        if ends:
            return [*markers, Marker(step=max(ends), label="horizon", kind="horizon")]
    return markers


def _description(title: str, shown: tuple[int, int], drawn: Sequence[TrialRecord]) -> str:
    text = f"{title} per step, steps {shown[0]:,} to {shown[1]:,}, for the run and "
    text += words.count(len(drawn), "trial") + "."
    for kind in reversed(_LAYERS):
        names = [words.label(record) for record in drawn if kind_of(record) == kind]
        if names:
            text += f" {kind.capitalize()}: {', '.join(names)}."
    return text + " The table of trials has the figures."


def _caption(
    trials: Sequence[TrialRecord],
    drawn: Sequence[TrialRecord],
    shown: tuple[int, int],
    *,
    most: int,
    longest: int,
    steps: Mapping[str, Sequence[StepRecord]],
) -> str:
    """Return what the signs mean, and what is not shown."""
    parts = ["× marks the first value that is NaN or infinite; ▲ is where a curve leaves the axis."]
    beyond = [
        f"{words.label(record)} (steps {record.spec.from_step:,} to {record.last_step:,})"
        for record in drawn
        if record.steps > 0 and (record.spec.from_step < shown[0] or record.last_step > shown[1])
    ]
    if beyond:
        more = f" and {len(beyond) - 8} more" if len(beyond) > 8 else ""
        parts.append(f"Only in part: {', '.join(beyond[:8])}{more}.")
    if longest > most:
        parts.append(
            f"Of the {longest:,} steps each curve has at most {most:,} points: of every stretch "
            "its lowest and its highest value, so that no spike is lost."
        )
    there = sum(bool(steps.get(record.spec.key)) for record in trials)
    if there > len(drawn):
        parts.append(
            f"Of {there} trials {len(drawn)} are drawn: those that decide, then the first; the "
            "table has all."
        )
    return " ".join(parts)
