"""The Grafana dashboard is one that Grafana can import, and asks only for what is served."""

from __future__ import annotations

import itertools
import json
import re

import pytest

from experiments import grafana_dashboard
from stabexp.boards import DASHBOARD, METRICS, packaged

BOARD = json.loads(packaged(DASHBOARD))
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
VARIABLES = {variable["name"]: variable for variable in BOARD["templating"]["list"]}
SERIES = {metric.series: metric for metric in METRICS.values()}
KNOWN_PANELS = {"row", "stat", "table", "timeseries", "status-history"}
BUILT_IN = {"__rate_interval", "__all"}


def expressions():
    for panel in PANELS:
        for target in panel["targets"]:
            yield target["expr"]
    for annotation in BOARD["annotations"]["list"]:
        yield annotation["expr"]


def found(key, value):
    """Yield what stands under a key, however deep."""
    if isinstance(value, list):
        for each in value:
            yield from found(key, each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name == key:
                yield each
            yield from found(key, each)


def test_the_file_is_what_its_source_makes():
    assert packaged(DASHBOARD) == grafana_dashboard.text()


def test_ids_are_unique():
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)


def test_panels_lie_in_the_grid_and_none_covers_another():
    taken = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= 24
        cells = set(
            itertools.product(
                range(place["x"], place["x"] + place["w"]),
                range(place["y"], place["y"] + place["h"]),
            )
        )
        assert not cells & taken, panel["title"]
        taken |= cells


def test_every_line_of_the_grid_is_full_or_empty():
    """A hole beside a panel looks like a mistake."""
    width = {}
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        for y in range(place["y"], place["y"] + place["h"]):
            width[y] = width.get(y, 0) + place["w"]
    assert set(width.values()) == {24}


def test_every_variable_is_used_and_every_one_used_is_defined():
    text = json.dumps({key: value for key, value in BOARD.items() if key != "templating"})
    text += json.dumps([v.get("datasource") for v in VARIABLES.values()])
    used = {a or b for a, b in re.findall(r"\$(?:\{(\w+)\}|(\w+))", text)} - BUILT_IN
    assert used == VARIABLES.keys()


def test_every_source_of_data_is_the_one_that_is_chosen():
    sources = list(found("datasource", BOARD))
    assert len(sources) > 2 * len(PANELS)
    assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)
    assert VARIABLES["datasource"]["type"] == "datasource"


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_says_what_it_shows_and_in_which_unit(panel):
    assert panel["type"] in KNOWN_PANELS
    assert panel["description"].endswith(".")
    defaults = panel["fieldConfig"]["defaults"]
    assert panel["type"] == "table" or defaults["unit"]
    letters = [target["refId"] for target in panel["targets"]]
    assert len(set(letters)) == len(letters)


def test_titles_are_unique():
    titles = [panel["title"] for panel in PANELS]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("expr", sorted(set(expressions())))
def test_only_metrics_that_are_served_are_asked_for_with_their_labels(expr):
    named = re.findall(r"(stabexp_\w+)(?:\{([^}]*)\})?", expr)
    assert named
    for name, selector in named:
        labels = set(re.findall(r"(\w+)\s*=", selector))
        assert labels <= set(SERIES[name].labels), name


def test_what_the_board_is_for_is_on_it():
    shown = " ".join(expressions())
    for name in (
        "stabexp_layer_gradient_norm",
        "stabexp_layer_update_ratio",
        "stabexp_layer_activation_sparsity_ratio",
        "stabexp_loss_second_derivative",
    ):
        assert name in shown
