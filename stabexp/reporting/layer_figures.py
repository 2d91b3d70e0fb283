"""The pictures of a run's layers: gradient flow over depth, layers × steps, and the onset."""

from __future__ import annotations

import math
from collections.abc import Sequence

from stabexp.records import Divergence, StepRecord
from stabexp.reporting.chart import Marker
from stabexp.reporting.depth_chart import Depth, depth_chart
from stabexp.reporting.heatmap import WIDTH, heatmap
from stabexp.reporting.layer_norms import LayerNorms, layer_norms, middle
from stabexp.reporting.svg_document import Picture, svg_document
from stabexp.reporting.words import count, figure

AROUND = 40
"""Steps before the onset that the picture of the onset shows."""


def layer_figures(
    records: Sequence[StepRecord],
    *,
    name: str,
    divergence: Divergence | None,
    near: Sequence[StepRecord] = (),
) -> dict[str, str]:
    """Return file name → SVG; empty when no step measured layers.

    Args:
        records: The run's steps, oldest first.
        name: The run's, for titles.
        divergence: What its detectors found.
        near: Steps around the onset at which every layer was measured, from a replay; the run's
            own where there are none.
    """
    norms = layer_norms(records)
    if norms is None:
        return {}
    markers = _markers(divergence)
    drawn = {
        "gradient_flow.svg": gradient_flow(records, name=name, divergence=divergence, near=near),
        "gradient_heatmap.svg": heatmap(
            norms,
            title="Gradient norm by layer and step",
            subtitle=f"{name}: {count(len(norms.layers), 'layer')}, measured at "
            f"{count(len(norms.steps), 'step')}",
            markers=markers,
            unit="gradient norm",
        ),
    }
    weights = layer_norms(records, "weight_norm")
    if weights is not None:
        drawn["weight_heatmap.svg"] = heatmap(
            weights,
            title="Weight norm by layer and step",
            subtitle=f"{name}: {count(len(weights.layers), 'layer')}, after the update",
            markers=markers,
            unit="weight norm",
        )
    if divergence is not None and near:
        drawn["onset_heatmap.svg"] = around_onset(near, name=name, divergence=divergence)
    return {file: svg_document(picture) for file, picture in drawn.items() if picture is not None}


def around_onset(
    near: Sequence[StepRecord], *, name: str, divergence: Divergence, width: int = WIDTH
) -> Picture | None:
    """Return layers × steps around the onset, None when no step there measured layers."""
    first = divergence.onset - AROUND
    close = layer_norms([record for record in near if record.step >= first])
    if close is None:
        return None
    return heatmap(
        close,
        title="Gradient norm by layer, around the onset",
        subtitle=f"{name}, replayed unchanged with every layer measured at every step",
        markers=_markers(divergence),
        unit="gradient norm",
        width=width,
    )


def _markers(divergence: Divergence | None) -> list[Marker]:
    if divergence is None:
        return []
    marks = [Marker(step=divergence.onset, label="onset", kind="onset")]
    if divergence.detected != divergence.onset:
        marks.append(Marker(step=divergence.detected, label="detected", kind="end"))
    return marks


def gradient_flow(
    records: Sequence[StepRecord],
    *,
    name: str,
    divergence: Divergence | None,
    near: Sequence[StepRecord] = (),
    width: int = WIDTH,
) -> Picture | None:
    """Return each layer's gradient over depth, well and diverged; None when none was measured."""
    norms = layer_norms(records)
    if norms is None:
        return None
    last = norms.steps[-1]
    if divergence is None:
        tenth = max(1, len(norms.steps) // 10)
        begin, end = norms.steps[tenth - 1], norms.steps[-tenth]
        names = {"before": f"steps 0 to {begin}", "end": f"steps {end} to {last}"}
        lines = [
            _depth(
                norms,
                layer,
                well=last,
                points={
                    "before": middle(norms.of(layer, 0, begin)),
                    "end": _worst(norms.of(layer, end, last)),
                },
                records=records,
            )
            for layer in norms.layers
        ]
        told = "how it began and how it ended"
        return _drawn(lines, name, told, names, width)
    close = layer_norms(near) if near else None
    source = norms if close is None else close
    after = [step for step in source.steps if step >= divergence.onset]
    names = {"before": f"median up to step {divergence.onset - 1}"}
    if after:
        names["onset"] = f"step {after[0]}"
    if len(after) > 1:
        names["end"] = f"step {after[-1]}"
    lines = []
    for layer in norms.layers:
        points = {"before": middle(norms.of(layer, 0, divergence.onset - 1))}
        if layer in source.values and after:
            points["onset"] = _at(source, layer, after[0])
            if len(after) > 1:
                points["end"] = _at(source, layer, after[-1])
        lines.append(
            _depth(norms, layer, well=divergence.onset - 1, points=points, records=records)
        )
    told = f"it diverged from step {divergence.onset} on"
    if not after:
        told += "; no later step measured layers: `stabexp locate` replays with all of them"
    return _drawn(lines, name, told, names, width)


def _drawn(
    lines: Sequence[Depth], name: str, told: str, names: dict[str, str], width: int
) -> Picture:
    return depth_chart(
        lines,
        title="Gradient flow over depth",
        subtitle=f"{name}: {told}",
        names=names,
        beside="zeros" if any(line.beside for line in lines) else "",
        width=width,
    )


def _depth(
    norms: LayerNorms,
    layer: str,
    *,
    well: float,
    points: dict[str, float],
    records: Sequence[StepRecord],
) -> Depth:
    healthy = [value for value in norms.of(layer, 0, well) if math.isfinite(value)]
    zeros = [
        figures["grad_zeros"]
        for record in records
        if (figures := (record.layers or {}).get(layer)) is not None and "grad_zeros" in figures
    ]
    return Depth(
        layer=layer,
        low=min(healthy, default=math.nan),
        high=max(healthy, default=math.nan),
        points=points,
        beside=f"{figure(100 * zeros[-1])} %" if zeros else "",
    )


def _at(norms: LayerNorms, layer: str, step: int) -> float:
    found = norms.of(layer, step, step)
    return found[0] if found else math.nan


def _worst(values: Sequence[float]) -> float:
    broken = [value for value in values if not math.isfinite(value)]
    return broken[0] if broken else middle(values)
