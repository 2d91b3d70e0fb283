"""The charts of a report as files that stand alone, for pages that have no style sheet of ours."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from stabexp.records import StepRecord
from stabexp.reporting.chart import Marker, line_chart
from stabexp.reporting.curve import Curve
from stabexp.reporting.svg_document import Picture, svg_document

WIDTH, HEIGHT = 760, 300
_HEAD = 52

_STYLE = """<style>
svg{--cured:#17743f;--diverged:#b3202c;--delayed:#a14207;--run:#69727d}
@media(prefers-color-scheme:dark){svg{--cured:#5ccb8b;--diverged:#ff7f7f;--delayed:#f79a66;
--run:#98a2ae}}
.axis .base,.axis .tick{stroke:var(--soft)}.marker line{stroke:var(--soft);stroke-dasharray:2 3}
.marker text{fill:var(--ink)}.curve .line{fill:none;stroke:currentColor;stroke-width:1.6;
stroke-linejoin:round;stroke-linecap:round}.curve .touch{fill:none;stroke:none}
.curve .cross{fill:none;stroke:currentColor;stroke-width:2.2}.curve .off{fill:currentColor}
.curve.cured{color:var(--cured)}.curve.diverged{color:var(--diverged)}
.curve.delayed{color:var(--delayed)}.curve.delayed .line{stroke-dasharray:7 4}
.curve.run{color:var(--run)}.curve.run .line{stroke-dasharray:2 4}
.end,.marker text{paint-order:stroke;stroke:var(--paper);stroke-width:3px;stroke-linejoin:round}
.end{font-weight:640}text.end{fill:var(--soft)}.end.cured{fill:var(--cured)}
.end.diverged{fill:var(--diverged)}.end.delayed{fill:var(--delayed)}.key{font-weight:640}
.key.cured{fill:var(--cured)}.key.diverged{fill:var(--diverged)}.key.delayed{fill:var(--delayed)}
</style>"""


def loss_curve(
    records: Sequence[StepRecord], *, name: str, kind: str, label: str, field: str = "loss"
) -> Curve:
    """Return a run's loss, or a metric that its loop logged, as a curve.

    Args:
        records: The steps.
        name: What the legend says.
        kind: "diverged", "cured", "delayed" or "run": its colour.
        label: Two or three characters at its end.
        field: "loss", or the name of a logged metric.
    """
    points = [
        (float(record.step), record.loss if field == "loss" else record.metrics[field])
        for record in records
        if field == "loss" or field in record.metrics
    ]
    return Curve(key=name, label=label, title=name, kind=kind, points=points)


def picture(
    curves: Sequence[Curve],
    *,
    title: str,
    y_label: str = "loss",
    markers: Sequence[Marker] = (),
) -> str:
    """Return an SVG file with curves over steps, light or dark as its reader's screen is."""
    chart = line_chart(
        curves,
        name="chart",
        title=title,
        description=_described(curves),
        y_label=y_label,
        markers=markers,
        width=WIDTH,
        height=HEIGHT,
    )
    inner = re.sub(r'<svg class="chart" role="img"', f'<svg x="0" y="{_HEAD}"', chart, count=1)
    return svg_document(
        Picture(
            parts=[_STYLE, *_legend(curves), inner],
            title=title,
            subtitle="",
            description=_described(curves),
            width=WIDTH,
            height=HEIGHT + _HEAD,
        )
    )


def write_picture(file: Path, svg: str) -> None:
    """Write a picture, and make its folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(svg, "utf-8")


def _legend(curves: Sequence[Curve]) -> list[str]:
    parts, x = [], 16.0
    for curve in sorted(curves, key=lambda curve: curve.label):
        text = f"{curve.label}  {curve.title}" if curve.label else curve.title
        parts.append(f'<text class="key {curve.kind}" x="{x:.0f}" y="43">{text}</text>')
        x += 7.0 * len(text) + 22
    return parts


def _described(curves: Sequence[Curve]) -> str:
    said = []
    for curve in curves:
        finite = [point for point in curve.points if math.isfinite(point[1])]
        if finite:
            (_, first), (step, last) = finite[0], finite[-1]
            said.append(f"{curve.title}: from {first:.3g} to {last:.3g} at step {step:.0f}")
    return "; ".join(said) + "."
