"""The kinds of panels that the Grafana dashboard is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
BAD, LOOK, GOOD, NEUTRAL = "red", "orange", "green", "blue"


def target(expr: str, legend: str = "{{run}}", *, instant: bool = False) -> dict[str, Any]:
    made: dict[str, Any] = {"datasource": SOURCE, "expr": expr, "legendFormat": legend}
    if instant:
        made |= {"instant": True, "range": False, "format": "table"}
    return made


def curves(
    title: str,
    description: str,
    targets: Sequence[dict[str, Any]],
    *,
    width: int,
    unit: str = "short",
    log: bool = False,
    limits: Sequence[tuple[str, float | None]] = (),
    height: int = 8,
) -> dict[str, Any]:
    """Return a panel of lines over time; `limits` are drawn as coloured regions."""
    custom: dict[str, Any] = {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 0,
        "showPoints": "never",
        "spanNulls": False,
        "scaleDistribution": {"type": "log", "log": 10} if log else {"type": "linear"},
        "thresholdsStyle": {"mode": "area" if limits else "off"},
    }
    steps = [{"color": color, "value": value} for color, value in limits]
    return {
        "type": "timeseries",
        "title": title,
        "description": description,
        "width": width,
        "height": height,
        "targets": list(targets),
        "fieldConfig": {
            "defaults": {
                "unit": unit,
                "custom": custom,
                "thresholds": {
                    "mode": "absolute",
                    "steps": steps or [{"color": "transparent", "value": None}],
                },
            },
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }


def number(
    title: str,
    description: str,
    expr: str,
    *,
    unit: str = "short",
    limits: Sequence[tuple[str, float | None]] = ((NEUTRAL, None),),
    text: str = "",
    width: int = 4,
) -> dict[str, Any]:
    """Return one large figure per run; `text` shows a label of the series instead."""
    return {
        "type": "stat",
        "title": title,
        "description": description,
        "width": width,
        "height": 4,
        "targets": [
            {**target(expr, text or "{{run}}"), "instant": True, "range": False},
        ],
        "fieldConfig": {
            "defaults": {
                "unit": unit,
                "noValue": "–",
                "thresholds": {
                    "mode": "absolute",
                    "steps": [{"color": color, "value": value} for color, value in limits],
                },
            },
            "overrides": [],
        },
        "options": {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "textMode": "name" if text else "auto",
            "colorMode": "value",
            "graphMode": "none",
            "justifyMode": "auto",
        },
    }


def layer_map(
    title: str, description: str, expr: str, limits: Sequence[tuple[str, float | None]], unit: str
) -> dict[str, Any]:
    """Return a heat map: one line per layer, one cell per moment, coloured by `limits`."""
    return {
        "type": "status-history",
        "title": title,
        "description": description,
        "width": 24,
        "height": 10,
        "maxDataPoints": 60,
        "targets": [target(expr, "{{layer}}")],
        "fieldConfig": {
            "defaults": {
                "unit": unit,
                "custom": {"fillOpacity": 80, "lineWidth": 0},
                "color": {"mode": "thresholds"},
                "thresholds": {
                    "mode": "absolute",
                    "steps": [{"color": color, "value": value} for color, value in limits],
                },
            },
            "overrides": [],
        },
        "options": {
            "showValue": "never",
            "rowHeight": 0.9,
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
            "tooltip": {"mode": "single"},
        },
    }


def table(
    title: str,
    description: str,
    columns: Mapping[str, tuple[str, str]],
    *,
    keys: Sequence[str],
    height: int = 8,
    sort: str = "",
) -> dict[str, Any]:
    """Return a table: one line per value of the labels `keys`, one column per expression.

    Args:
        columns: Heading → expression and unit; the expression has no labels but `keys`.
        keys: Labels that stand first.
        sort: Heading to sort by, the largest first.
    """
    letters = [chr(ord("A") + i) for i in range(len(columns))]
    names = {f"Value #{letter}": head for letter, head in zip(letters, columns, strict=True)}
    overrides = [
        {
            "matcher": {"id": "byName", "options": head},
            "properties": [{"id": "unit", "value": unit}, {"id": "noValue", "value": "–"}],
        }
        for head, (_, unit) in columns.items()
    ]
    return {
        "type": "table",
        "title": title,
        "description": description,
        "width": 24,
        "height": height,
        "targets": [
            {**target(expr, "__auto", instant=True), "refId": letter}
            for letter, (expr, _) in zip(letters, columns.values(), strict=True)
        ],
        "transformations": [
            {"id": "merge", "options": {}},
            {
                "id": "organize",
                "options": {
                    "excludeByName": {"Time": True},
                    "indexByName": {key: i for i, key in enumerate([*keys, *names])},
                    "renameByName": names,
                },
            },
        ],
        "fieldConfig": {"defaults": {"custom": {"align": "auto"}}, "overrides": overrides},
        "options": {
            "showHeader": True,
            "sortBy": [{"displayName": sort, "desc": True}] if sort else [],
        },
    }


def by(labels: str, expr: str) -> str:
    return f"max by ({labels}) ({expr})"
