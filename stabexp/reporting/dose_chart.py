"""Dose and response of one variable: how strong a change was, and how far the run then got.

The picture has two floors, because two things are asked of a dose. Below: trials that diverged, by
how many steps they survived. Above the line of the horizon: trials that reached it, by their loss
at the end, so that one that survived by learning nothing lies at the bottom of its floor. Up is
better on both, and stronger doses lie further right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stabexp.records import Cure, TrialRecord
from stabexp.reporting import words
from stabexp.reporting.curve import text
from stabexp.reporting.end_labels import CHARACTER
from stabexp.reporting.marks import mark_shapes
from stabexp.reporting.scale import Scale, step_ticks, value_scale

WIDTH, HEIGHT = 380, 256
LEFT, RIGHT, TOP, HORIZON, BOTTOM = 58.0, WIDTH - 16.0, 26.0, 104.0, HEIGHT - 44.0
INSET = 20.0
"""Room beside the outermost doses, so that no mark touches an edge."""

_FACTORS = ("learning_rate", "batch_size")
"""Variables whose doses are multiples of what the run had, so it is 1."""
_LOGARITHMIC = (*_FACTORS, "clip_norm")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dose:
    record: TrialRecord
    x: float
    y: float
    label: str
    rank: int
    """Whose label is kept when there is no room for all: the lowest."""


def dose_chart(
    variable: str,
    records: Sequence[TrialRecord],
    *,
    name: str,
    cure: Cure | None = None,
    control: TrialRecord | None = None,
) -> str:
    """Return one `<svg>` element.

    Args:
        variable: What was changed.
        records: Its dose trials, from mild to strong.
        name: Unique on the page; the ids inside the picture begin with it.
        cure: The mildest cure that was found.
        control: The trial that changed nothing, drawn at the original value.
    """
    places = _places(variable, records, cure)
    longest = max([1, *(r.spec.until_step - r.spec.from_step for r in records)])
    losses = [r.end_loss for r in records if _reached(r)]
    starts = [r.start_loss for r in records if _reached(r) and math.isfinite(r.start_loss)]
    scale = value_scale([*losses, *starts])
    doses = [
        _Dose(
            record=record,
            x=places[record.spec.key],
            y=_height(record, scale, longest),
            label=words.dose(variable, record.spec.dose),
            rank=_rank(record, cure),
        )
        for record in records
    ]
    parts = [
        f'<svg class="chart doses" role="img" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" aria-labelledby="{name}-title {name}-desc">',
        f'<title id="{name}-title">Dose and response of {text(variable)}</title>',
        f'<desc id="{name}-desc">{text(_description(variable, records))}</desc>',
        *_band(doses, cure, places["original"]),
        *_floors(scale if losses else None, longest, starts[0] if losses and starts else None),
    ]
    judged = [dose for dose in doses if dose.record.outcome != "inconclusive"]
    line = "L".join(f"{dose.x:.1f} {dose.y:.1f}" for dose in judged)
    parts.append(f'<path class="through" d="M{line}"/>' if judged else "")
    if control is not None:
        parts += _original(control, places["original"], _height(control, scale, longest))
    for dose in doses:
        parts += _mark(dose, robust=cure is not None and cure.robust and dose.rank == 0)
    return "".join([*parts, *_labels(doses, places["original"]), "</svg>"])


def _reached(record: TrialRecord) -> bool:
    """Whether a trial got to its horizon with a loss that can be drawn."""
    judged = record.outcome != "inconclusive"
    return judged and record.divergence is None and math.isfinite(record.end_loss)


def _height(record: TrialRecord, scale: Scale, longest: int) -> float:
    if _reached(record):
        return TOP + 8 + scale.share(record.end_loss) * (HORIZON - TOP - 20)
    if record.outcome == "inconclusive" or record.divergence is None:
        return BOTTOM - 10
    survived = max(0, record.divergence.detected - record.spec.from_step)
    return BOTTOM - 10 - min(1.0, survived / longest) * (BOTTOM - HORIZON - 20)


def _places(variable: str, records: Sequence[TrialRecord], cure: Cure | None) -> dict[str, float]:
    """Return where each trial lies, by its key, and where the original value does."""
    doses = [record.spec.dose for record in records]
    original = cure.original if cure else 1.0 if variable in _FACTORS else None
    if all(isinstance(dose, (int, float)) for dose in doses):
        numbers = [float(dose) for dose in doses if isinstance(dose, (int, float))]
        known = original if isinstance(original, (int, float)) else None
        log = (
            variable in _LOGARITHMIC and min(numbers) > 0 and not (known is not None and known <= 0)
        )
        bent = [math.log10(number) if log else number for number in numbers]
        start = None if known is None else math.log10(known) if log else float(known)
    else:
        bent = [float(index + 1) for index in range(len(doses))]
        start = 0.0
    spread = [*bent, *([] if start is None else [start])]
    low, high = min(spread), max(spread)
    # Where the run had no value at all, it has a place of its own, left of the mildest dose.
    left = LEFT + INSET + (0.0 if start is not None else 46.0)
    towards = -1.0 if bent[-1] < bent[0] or (start is not None and bent[-1] < start) else 1.0

    def x(at: float) -> float:
        if high == low:
            return (left + RIGHT) / 2
        share = (at - low) / (high - low)
        return left + (share if towards > 0 else 1 - share) * (RIGHT - INSET - left)

    places = {record.spec.key: x(at) for record, at in zip(records, bent, strict=True)}
    places["original"] = x(start) if start is not None else LEFT + INSET
    return places


def _rank(record: TrialRecord, cure: Cure | None) -> int:
    if cure is None:
        return 2
    if record.spec.key == cure.trial:
        return 0
    return 1 if record.spec.dose in {cure.milder_dose, cure.stronger_dose} else 2


def _band(doses: Sequence[_Dose], cure: Cure | None, original: float) -> list[str]:
    """Return the stretch in which the edge lies: from what does not cure to what does."""
    if cure is None or not cure.robust:
        return []
    mildest = next((dose.x for dose in doses if dose.record.spec.key == cure.trial), None)
    if mildest is None:
        return []
    milder = [dose.x for dose in doses if dose.record.spec.dose == cure.milder_dose]
    begin = milder[0] if milder else original
    return [
        f'<rect class="edge-band" x="{min(begin, mildest):.1f}" y="{TOP}" '
        f'width="{abs(mildest - begin):.1f}" height="{BOTTOM - TOP}"/>',
        f'<line class="pointer" x1="{mildest:.1f}" x2="{mildest:.1f}" y1="{TOP - 6}" '
        f'y2="{BOTTOM}"/>',
        _above(mildest, "mildest robust cure"),
    ]


def _above(x: float, words_: str) -> str:
    half = len(words_) * CHARACTER / 2
    at = min(max(x, LEFT + half - 20), RIGHT - half + 12)
    return f'<text class="told" x="{at:.1f}" y="14" text-anchor="middle">{words_}</text>'


def _floors(scale: Scale | None, longest: int, start: float | None) -> list[str]:
    parts = []
    if scale is None:
        middle = (LEFT + RIGHT) / 2
        parts.append(
            f'<text x="{middle:.1f}" y="{(TOP + HORIZON) / 2:.1f}" text-anchor="middle">'
            "none reached the horizon</text>"
        )
    else:
        for value, label in scale.ticks(3):
            y = TOP + 8 + scale.share(value) * (HORIZON - TOP - 20)
            parts.append(_tick(y, label))
        if start is not None and not scale.outside(start):
            y = TOP + 8 + scale.share(start) * (HORIZON - TOP - 20)
            parts.append(
                f'<line class="began" x1="{LEFT}" x2="{RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            )
    for value in step_ticks(0, longest, 3):
        if value < 0.9 * longest:
            y = BOTTOM - 10 - value / longest * (BOTTOM - HORIZON - 20)
            parts.append(_tick(y, words.figure(value)))
    return [
        *parts,
        f'<line class="horizon" x1="{LEFT}" x2="{RIGHT}" y1="{HORIZON}" y2="{HORIZON}"/>',
        f'<text class="told" x="{LEFT - 8}" y="{HORIZON + 4}" text-anchor="end">horizon</text>',
        f'<line class="base" x1="{LEFT}" x2="{RIGHT}" y1="{BOTTOM}" y2="{BOTTOM}"/>',
        *(
            f'<text class="name" transform="translate(11 {middle:.1f}) rotate(-90)" '
            f'text-anchor="middle">{told}</text>'
            for middle, told in (
                ((TOP + HORIZON) / 2 - 6, "end loss"),
                ((HORIZON + BOTTOM) / 2 + 6, "steps held"),
            )
        ),
    ]


def _tick(y: float, label: str) -> str:
    return (
        f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    )


def _original(control: TrialRecord, x: float, y: float) -> list[str]:
    return [
        f'<line class="pointer" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{BOTTOM}"/>',
        f'<g class="control"><title>{text(words.label(control))} control, as the run was: '
        f'{text(words.finding(control))}</title><circle class="ground" cx="{x:.1f}" cy="{y:.1f}" '
        f'r="9"/><circle class="ring" cx="{x:.1f}" cy="{y:.1f}" r="6.5"/></g>',
    ]


def _mark(dose: _Dose, *, robust: bool) -> list[str]:
    record = dose.record
    ring = f'<circle class="ring" cx="{dose.x:.1f}" cy="{dose.y:.1f}" r="12.5"/>' if robust else ""
    return [
        f'<g class="dot {record.outcome}"><title>{text(words.label(record))} {text(dose.label)}, '
        f"{record.outcome}: {text(words.finding(record))}</title>"
        f'<circle class="ground" cx="{dose.x:.1f}" cy="{dose.y:.1f}" r="10"/>{ring}'
        f'<g class="mark" transform="translate({dose.x - 8:.1f} {dose.y - 8:.1f})">'
        f"{mark_shapes(record.outcome)}</g></g>"
    ]


def _labels(doses: Sequence[_Dose], original: float) -> list[str]:
    """Return the doses below the axis, those that matter most first, as far as there is room."""
    parts, taken = [], list[tuple[float, float]]()
    wanted = [(dose.rank, dose.x, dose.label) for dose in doses]
    if all(abs(original - dose.x) > 4 for dose in doses):
        wanted.append((1, original, "as it was"))
    for rank, x, label in sorted(wanted, key=lambda item: item[0]):
        half = len(label) * CHARACTER / 2 + 2
        at = min(max(x, half), WIDTH - half)
        if any(at - half < right and at + half > left for left, right in taken):
            continue
        taken.append((at - half, at + half))
        strong = ' class="told"' if rank == 0 else ""
        parts.append(
            f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{BOTTOM}" y2="{BOTTOM + 5}"/>'
            f'<text{strong} x="{at:.1f}" y="{BOTTOM + 18}" text-anchor="middle">'
            f"{text(label)}</text>"
        )
    middle = (LEFT + RIGHT) / 2
    parts.append(
        f'<text class="name" x="{middle:.1f}" y="{BOTTOM + 36}" text-anchor="middle">'
        "mild → strong</text>"
    )
    return parts


def _description(variable: str, records: Sequence[TrialRecord]) -> str:
    told = ", ".join(
        f"{words.dose(variable, record.spec.dose)} {record.outcome}" for record in records
    )
    return f"From mild to strong: {told}. The list below has a link to each trial."
