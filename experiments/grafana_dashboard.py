"""The Grafana dashboard of the package, as a grid of rows that are easy to change.

    python -m experiments.grafana_dashboard --write     into stabexp/boards/grafana_dashboard.json

A test compares the file with what this makes, so that nobody edits the one without the other.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.grafana_panels import (
    BAD,
    GOOD,
    LOOK,
    SOURCE,
    by,
    curves,
    layer_map,
    number,
    table,
    target,
)

FILE = Path(__file__).parents[1] / "stabexp" / "boards" / "grafana_dashboard.json"
SCHEMA_VERSION = 36
"""What @grafana/schema gave out up to Grafana 10 and 11.0; later ones bring it up to date."""

RUN = '{run=~"$run"}'
LAYER = '{run=~"$run", layer=~"$layer"}'

_PER_RUN = {
    "state": (by("run, status", f"stabexp_run_status{RUN} == 1"), "none"),
    "step": (by("run", f"stabexp_latest_step{RUN}"), "locale"),
    "of": (by("run", f"stabexp_planned_steps{RUN}"), "locale"),
    "loss": (by("run", f"stabexp_loss{RUN}"), "short"),
    "gradient norm": (by("run", f"stabexp_gradient_norm{RUN}"), "short"),
    "steps per second": (by("run", f"stabexp_steps_per_second{RUN}"), "short"),
    "latest step": (by("run", f"time() - stabexp_latest_step_timestamp_seconds{RUN}"), "s"),
    "alarms": (f"sum by (run) (stabexp_alarms_total{RUN})", "none"),
}
_PER_LAYER = {
    "gradient norm": (by("run, layer", f"stabexp_layer_gradient_norm{LAYER}"), "short"),
    "weight norm": (by("run, layer", f"stabexp_layer_weight_norm{LAYER}"), "short"),
    "update ratio": (by("run, layer", f"stabexp_layer_update_ratio{LAYER}"), "sci"),
    "activations at zero": (
        by("run, layer", f"stabexp_layer_activation_sparsity_ratio{LAYER}"),
        "percentunit",
    ),
    "activation RMS": (by("run, layer", f"stabexp_layer_activation_rms{LAYER}"), "short"),
    "gradients at zero": (
        by("run, layer", f"stabexp_layer_gradient_sparsity_ratio{LAYER}"),
        "percentunit",
    ),
}
_UPDATE_LIMITS = ((LOOK, None), (GOOD, 1e-4), (LOOK, 1e-2), (BAD, 1e-1))
_SPARSITY_LIMITS = ((GOOD, None), (LOOK, 0.8), (BAD, 0.95))

ROWS: Sequence[tuple[str, Sequence[dict[str, Any]]]] = (
    (
        "Runs",
        (
            number(
                "Running",
                "Runs whose process trains now.",
                'count(stabexp_run_status{run=~"$run", status="running"} == 1) or vector(0)',
            ),
            number(
                "Diverged",
                "Runs in which a detector fired.",
                f"sum(stabexp_diverged{RUN}) or vector(0)",
                limits=((GOOD, None), (BAD, 1)),
            ),
            number(
                "Alarms in the last hour",
                "What monitors found worth telling; an alarm ends nothing.",
                f"sum(increase(stabexp_alarms_total{RUN}[1h])) or vector(0)",
                limits=((GOOD, None), (LOOK, 1)),
            ),
            number(
                "Cause",
                "What the latest bisect says.",
                f"stabexp_verdict_info{RUN}",
                text="{{cause}}",
                width=6,
            ),
            number(
                "Confidence",
                "How often verdicts with this evidence are right.",
                f"stabexp_verdict_confidence_ratio{RUN}",
                unit="percentunit",
                width=6,
            ),
            table(
                "All runs",
                "One line per run that is served: at work, or ended within the hour.",
                _PER_RUN,
                keys=("run", "status"),
            ),
        ),
    ),
    (
        "Loss and gradients",
        (
            curves(
                "Loss",
                "Loss of the latest step, and the median of the run's latest minute.",
                (
                    target(f"stabexp_loss{RUN}"),
                    target(f"stabexp_loss_median{RUN}", "{{run}}, median"),
                ),
                width=12,
                log=True,
            ),
            curves(
                "Gradient norm",
                "L2 norm over all gradients before clipping: median and largest of the run's "
                "latest minute. Peaks of ten times the median throw a run over when nothing clips.",
                (
                    target(f"stabexp_gradient_norm_median{RUN}", "{{run}}, median"),
                    target(f"stabexp_gradient_norm_max{RUN}", "{{run}}, largest"),
                    target(f"stabexp_gradient_norm{RUN}", "{{run}}, latest step"),
                ),
                width=12,
                log=True,
            ),
            curves(
                "Second derivative of the loss",
                "Of the smoothed loss, per step squared. Below zero it levels off or falls faster, "
                "above zero it turns upwards. Needs the monitor loss_curve (light).",
                (target(f"stabexp_loss_second_derivative{RUN}"),),
                width=8,
                unit="sci",
            ),
            curves(
                "Slope of the loss",
                "Of the smoothed loss, per step. Needs the monitor loss_curve (light).",
                (target(f"stabexp_loss_slope{RUN}"),),
                width=8,
                unit="sci",
            ),
            curves(
                "Update ratio",
                "Size of an update relative to the parameters, |dW| / |W|. Usual is about 1e-3; "
                "below 1e-4 a run hardly learns, above 1e-1 it forgets.",
                (target(f"stabexp_update_ratio{RUN}"),),
                width=8,
                unit="sci",
                log=True,
                limits=_UPDATE_LIMITS,
            ),
            curves(
                "Learning rate",
                "Of the first parameter group, as used.",
                (target(f"stabexp_learning_rate{RUN}"),),
                width=8,
                unit="sci",
            ),
            curves(
                "Clipping",
                "What clipping multiplies the gradients by; 1 where it does not act.",
                (target(f"stabexp_clip_coefficient_ratio{RUN}"),),
                width=8,
                unit="percentunit",
            ),
            curves(
                "Loss scale and skipped updates",
                "With a gradient scaler: its scale, and the updates left out per second.",
                (
                    target(f"stabexp_loss_scale{RUN}", "{{run}}, scale"),
                    target(
                        f"rate(stabexp_skipped_updates_total{RUN}[$__rate_interval])",
                        "{{run}}, skipped per second",
                    ),
                ),
                width=8,
            ),
        ),
    ),
    (
        "Layers",
        (
            curves(
                "Gradient norm per layer",
                "Where gradients explode or vanish over depth. Needs the monitor layers (light).",
                (target(f"stabexp_layer_gradient_norm{LAYER}", "{{layer}}"),),
                width=8,
                log=True,
            ),
            curves(
                "Update ratio per layer",
                "Size of a layer's update relative to its weights, usually about 1e-3. Needs the "
                "monitor updates (standard).",
                (target(f"stabexp_layer_update_ratio{LAYER}", "{{layer}}"),),
                width=8,
                unit="sci",
                log=True,
                limits=_UPDATE_LIMITS,
            ),
            curves(
                "Activation sparsity per module",
                "Share of zeros in what a module puts out. Above 95 % most of its units are dead. "
                "Needs the monitor activations (full).",
                (target(f"stabexp_layer_activation_sparsity_ratio{LAYER}", "{{layer}}"),),
                width=8,
                unit="percentunit",
                limits=_SPARSITY_LIMITS,
            ),
            layer_map(
                "Update ratio over depth",
                "One line per layer. Green: 1e-4 to 1e-2. Orange: hardly moves, or fast. Red: "
                "above 1e-1.",
                f"stabexp_layer_update_ratio{LAYER}",
                _UPDATE_LIMITS,
                "sci",
            ),
            table(
                "Layers now",
                "The latest figure of every layer that has series of its own. How many have none, "
                "because of the limit, is in stabexp_layers_left_out.",
                _PER_LAYER,
                keys=("run", "layer"),
                height=10,
                sort="gradient norm",
            ),
        ),
    ),
    (
        "What happened",
        (
            curves(
                "Alarms",
                "Alarms of the monitors so far, by what they are about.",
                (target(f"stabexp_alarms_total{RUN}", "{{run}}: {{alarm}}"),),
                width=8,
            ),
            curves(
                "Warnings and interventions",
                "Warnings of a crash to come, and what stabilisers and recoveries did, so far.",
                (
                    target(f"stabexp_warnings_total{RUN}", "{{run}}: {{kind}}"),
                    target(f"stabexp_interventions_total{RUN}", "{{run}}: by {{by}}"),
                ),
                width=8,
            ),
            curves(
                "Bisect",
                "Trials that the latest bisect has begun.",
                (target(f"stabexp_bisect_trials{RUN}"),),
                width=8,
            ),
        ),
    ),
    (
        "Speed",
        (
            curves(
                "Samples per second",
                "Over the run's latest minute.",
                (target(f"stabexp_samples_per_second{RUN}"),),
                width=8,
            ),
            curves(
                "Time of a step",
                "Median of the run's latest minute, data loading included.",
                (target(f"stabexp_step_duration_seconds{RUN}"),),
                width=8,
                unit="s",
            ),
            curves(
                "Other measurements",
                "Whatever else the run's monitors measure, by the name in the step log.",
                (target(f"stabexp_measurement{RUN}", "{{run}}: {{name}}"),),
                width=8,
                log=True,
            ),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, members in ROWS:
        panels.append(
            {
                "type": "row",
                "title": title,
                "collapsed": False,
                "panels": [],
                "gridPos": {"h": 1, "w": 24, "x": 0, "y": y},
            }
        )
        y += 1
        x = tallest = 0
        for member in members:
            panel = dict(member)
            width, height = panel.pop("width"), panel.pop("height")
            if x + width > 24:
                x, y, tallest = 0, y + tallest, 0
            panel["gridPos"] = {"h": height, "w": width, "x": x, "y": y}
            panel["datasource"] = SOURCE
            panel["targets"] = [
                {"refId": chr(ord("A") + i), **each} for i, each in enumerate(panel["targets"])
            ]
            panels.append(panel)
            x, tallest = x + width, max(tallest, height)
        y += tallest
    return {
        "title": "stabexp: training stability",
        "uid": "stabexp-training",
        "description": "Trainings that stabexp records: how they go, layer by layer, and what was "
        "found out. Metrics come from `stabexp metrics`.",
        "tags": ["stabexp", "training"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "links": [],
        "annotations": {
            "list": [
                {
                    "name": "Divergence",
                    "datasource": SOURCE,
                    "enable": True,
                    "iconColor": BAD,
                    "expr": f"(stabexp_diverged{RUN} == 1) unless "
                    f"(stabexp_diverged{RUN} offset 1m == 1)",
                    "step": "30s",
                    "titleFormat": "{{run}} diverged",
                    "textFormat": "stabexp bisect {{run}}",
                }
            ]
        },
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "label": "Prometheus",
                    "type": "datasource",
                    "query": "prometheus",
                    "hide": 0,
                },
                _labels("run", "Run", "label_values(stabexp_run_info, run)"),
                _labels("layer", "Layer", f"label_values(stabexp_layer_gradient_norm{RUN}, layer)"),
            ]
        },
        "panels": [{"id": i, **panel} for i, panel in enumerate(panels, 1)],
    }


def _labels(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "hide": 0,
    }


def text() -> str:
    """Return the dashboard as the file holds it."""
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.grafana_dashboard")
    parser.add_argument("--write", action="store_true", help="write the packaged file")
    if parser.parse_args().write:
        FILE.write_text(text(), "utf-8")
    else:
        print(text(), end="")


if __name__ == "__main__":
    main()
