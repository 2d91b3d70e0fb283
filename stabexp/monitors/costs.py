"""What monitors and presets cost, as measured by `python -m experiments.monitor_cost --write`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from stabexp.monitors.presets import PRESET_WORDS, PRESETS

PLACE = Path(__file__).with_name("costs.json")


@cache
def read_costs() -> Mapping[str, Any]:
    """Return the measured figures; empty when there are none."""
    return dict(json.loads(PLACE.read_text("utf-8"))) if PLACE.exists() else {}


def preset_lines() -> Iterator[str]:
    """Yield one line per preset with what is in it and what it costs, and how that was measured."""
    costs = read_costs()
    for name, monitors in PRESETS.items():
        yield f"{name} (preset): {PRESET_WORDS[name]}"
        yield f"    {', '.join(monitors)}"
        for model, words in costs.get("models", {}).items():
            figures = costs["presets"][model][name]
            yield (
                f"    time: {figures['over_none']:.3f} of a run without monitors, "
                f"{figures['over_bare']:.3f} of the bare loop ({words})"
            )
    for model, words in costs.get("models", {}).items():
        figures = costs["presets"][model]
        yield (
            f"for comparison ({words}): stabexp without monitors {figures['none']['over_bare']:.3f}"
            f" of the bare loop; six figures per parameter, one by one, "
            f"{figures['naive']['over_bare']:.3f}"
        )
    if costs:
        yield f"measured in processor time of the training thread on: {costs['machine']}"


def cost_words(name: str) -> str:
    """Return what one monitor adds to a step at its own interval, "" when it was not measured."""
    costs = read_costs()
    found = [
        f"{_more(added[name])} ({costs['models'][model].partition(',')[0]})"
        for model, added in costs.get("monitors", {}).items()
        if name in added
    ]
    return "; ".join(found)


def _more(share: float) -> str:
    return f"+{share:.2%}" if share >= 0.0001 else "under +0.01%"
