"""The part of the page that looks into the network: gradient flow, layers × steps, and in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stabexp.records import Divergence, StepRecord
from stabexp.reporting.layer_figures import around_onset, gradient_flow
from stabexp.reporting.layer_norms import LayerNorms, layer_norms, middle
from stabexp.reporting.report import Report
from stabexp.reporting.svg_document import Picture, svg_inside
from stabexp.reporting.words import count, figure

SIZES = (("wide", 1000), ("narrow", 380))
ROWS = 40
"""Layers in the table, at most: those that changed most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPicture:
    """One picture, drawn for wide and for narrow screens."""

    title: str
    caption: str
    wide: str
    narrow: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRow:
    """One layer's gradient norm in figures."""

    layer: str
    before: float
    """Median up to the onset; NaN when it was not measured then."""
    onset: float
    last: float

    @property
    def change(self) -> float:
        """How many times the median the last value is; infinite when it is not finite."""
        if math.isnan(self.before) or self.before <= 0:
            return math.nan if math.isfinite(self.last) else math.inf
        return self.last / self.before if math.isfinite(self.last) else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSection:
    """Pictures, and what they show in words and figures."""

    pictures: tuple[LayerPicture, ...] = ()
    told: str = ""
    rows: tuple[LayerRow, ...] = ()
    left_out: int = 0
    """Layers that the table has no room for."""


def layer_section(report: Report) -> LayerSection:
    """Return what was measured of the layers; empty when nothing was."""
    divergence = report.verdict.divergence
    if divergence.detector == "none":
        return LayerSection()
    close = [step for step in report.near if step.layers]
    own = [step for step in report.steps if step.layers]
    source = close or own
    norms = layer_norms(source)
    if norms is None:
        return LayerSection()
    name = report.verdict.run_id
    flows = [
        gradient_flow(own or close, name=name, divergence=divergence, near=close, width=width)
        for _, width in SIZES
    ]
    maps = [
        around_onset(source, name=name, divergence=divergence, width=width) for _, width in SIZES
    ]
    where = (
        "Measured at every step in an exact replay of the run."
        if close
        else "Measured by the run itself, at the steps that its monitor looked at."
    )
    rows = _rows(norms, divergence)
    return LayerSection(
        pictures=tuple(
            _picture(drawn, name=stem, caption=caption)
            for stem, drawn, caption in (
                ("flow", flows, "From the input (top) to the output, on a logarithmic scale."),
                ("layers", maps, where),
            )
            if None not in drawn
        ),
        told=_told(rows, divergence, source),
        rows=tuple(rows[:ROWS]),
        left_out=max(0, len(rows) - ROWS),
    )


def _picture(drawn: Sequence[Picture | None], *, name: str, caption: str) -> LayerPicture:
    wide, narrow = (
        svg_inside(picture, name=f"{name}-{size}")
        for picture, (size, _) in zip(drawn, SIZES, strict=True)
        if picture is not None
    )
    title = next(picture.title for picture in drawn if picture is not None)
    return LayerPicture(title=title, caption=caption, wide=wide, narrow=narrow)


def _rows(norms: LayerNorms, divergence: Divergence) -> list[LayerRow]:
    """Return the layers' figures, those that changed most first."""
    after = [step for step in norms.steps if step >= divergence.onset]
    rows = []
    for layer in norms.layers:
        onset = norms.of(layer, after[0], after[0]) if after else []
        last = norms.of(layer, after[-1], after[-1]) if after else []
        rows.append(
            LayerRow(
                layer=layer,
                before=middle(norms.of(layer, 0, divergence.onset - 1)),
                onset=onset[0] if onset else math.nan,
                last=last[0] if last else math.nan,
            )
        )
    return sorted(rows, key=lambda row: -_distance(row))


def _distance(row: LayerRow) -> float:
    if math.isnan(row.change) or row.change == 0:
        return 0.0
    return abs(math.log10(row.change))


def _told(rows: Sequence[LayerRow], divergence: Divergence, source: Sequence[StepRecord]) -> str:
    after = [step.step for step in source if step.step >= divergence.onset]
    if not after:
        return "No step from the onset on measured layers."
    lost = [row.layer for row in rows if not math.isfinite(row.last)]
    last = f"at step {after[-1]:,}"
    if lost:
        shown = ", ".join(lost[:3]) + (" and others" if len(lost) > 3 else "")
        return (
            f"{count(len(lost), 'layer').capitalize()} of {len(rows)} had a gradient that is NaN "
            f"or infinite {last}: {shown}."
        )
    grown = [row for row in rows if math.isfinite(row.change) and row.change > 0][:3]
    if not grown:
        return ""
    parts = [f"{figure(float(f'{row.change:.2g}'))} times in “{row.layer}”" for row in grown]
    return (
        f"Gradient norms {last} compared with the median before the onset, furthest off first: "
        f"{', '.join(parts)}."
    )
