"""`monitors: standard`, and what it costs."""

from __future__ import annotations

import pytest

from stabexp.config import Document, validate
from stabexp.errors import ConfigError
from stabexp.experiment import Experiment
from stabexp.monitors import MONITORS
from stabexp.monitors.costs import read_costs
from stabexp.monitors.presets import FULL, LIGHT, PRESETS, STANDARD
from stabexp.schema import catalogue, experiment_schema


def given(monitors):
    values = {"name": "test", "train": "own.py:train", "monitors": monitors}
    return validate(Experiment, Document("exp.yaml", values)).monitors


def test_each_preset_is_the_one_before_it_and_more():
    assert set(LIGHT) < set(STANDARD) < set(FULL) < set(MONITORS)


@pytest.mark.parametrize(
    ("monitors", "meant"),
    [
        ("light", LIGHT),
        ("full", FULL),
        ("layers", {"layers": {}}),
        (["light", "attention"], LIGHT | {"attention": {}}),
        ({"light": None, "layers": {"every": 5}}, LIGHT | {"layers": {"every": 5}}),
        ({"layers": {"every": 5}, "light": {}}, LIGHT | {"layers": {"every": 5}}),
        ({}, {}),
    ],
)
def test_a_preset_stands_for_its_monitors(monitors, meant):
    assert given(monitors) == meant


@pytest.mark.parametrize(
    ("monitors", "message"),
    [
        ("standrd", "'standrd' is no preset and no monitor; did you mean 'standard'?"),
        ({"full": {"every": 2}}, "full: a preset takes no arguments; name the monitor beside it"),
    ],
)
def test_what_is_no_preset_is_refused(monitors, message):
    with pytest.raises(ConfigError) as caught:
        given(monitors)
    assert message in str(caught.value)


def test_the_list_tells_the_measured_cost_of_every_preset_and_monitor():
    lines = list(catalogue("monitors"))
    for name in PRESETS:
        at = next(i for i, line in enumerate(lines) if line.startswith(f"{name} (preset)"))
        assert sum("of a run without monitors" in line for line in lines[at + 1 : at + 4]) == 2
    for name in set(MONITORS) - {"ranks"}:
        at = next(i for i, line in enumerate(lines) if line.startswith(f"{name}: "))
        assert lines[at + 1].startswith(("    time: +", "    time: under +")), name
    assert any(read_costs()["machine"] in line for line in lines)


def test_an_editor_offers_the_presets():
    word, names, mapping = experiment_schema()["properties"]["monitors"]["anyOf"]
    offered, listed = word["anyOf"][0]["enum"], names["items"]["anyOf"][0]["enum"]
    assert set(offered) == set(listed) == set(mapping["properties"])
    assert set(offered) == set(PRESETS) | set(MONITORS)
