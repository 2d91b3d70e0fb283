"""The pictures of the layers are whole SVG files that show what the step records say."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest

from stabexp.records import Divergence, StepRecord
from stabexp.reporting.heatmap import LOST, NONE, ZERO, colour
from stabexp.reporting.layer_figures import layer_figures

HOSTILE = '<b>&"\x00'


def run(count, layers, value=lambda layer, step: 1.0):
    """Return steps that measured the layers, each with a gradient and a weight norm."""
    return [
        StepRecord(
            step=step,
            time=0.0,
            loss=1.0,
            lr=0.1,
            grad_norm=1.0,
            layers={
                layer: {"grad_norm": value(layer, step), "weight_norm": 2.0} for layer in layers
            },
        )
        for step in range(count)
    ]


def divergence(onset):
    return Divergence(
        detector="divergence",
        detected=onset + 3,
        onset=onset,
        pattern="sudden_jump",
        value=9.0,
        limit=1.0,
        message="",
    )


def drawn(records, **options):
    chosen = {"name": "a-run", "divergence": None} | options
    return {
        name: (text, ElementTree.fromstring(text))
        for name, text in layer_figures(records, **chosen).items()
    }


def words(root):
    return [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]


def test_a_healthy_run_gets_flow_and_heatmaps_with_every_layer_by_name():
    layers = [f"blocks.{n}.mlp" for n in range(5)]
    found = drawn(run(40, layers, lambda layer, step: 10.0 ** -int(layer[7])))
    assert set(found) == {"gradient_flow.svg", "gradient_heatmap.svg", "weight_heatmap.svg"}
    for _, root in found.values():
        assert set(layers) <= set(words(root))
        assert any("a-run" in text for text in words(root))


def test_lost_zero_and_missing_gradients_have_colours_of_their_own():
    def value(layer, step):
        if layer == "first":
            return math.nan if step > 15 else 1.0
        return 0.0

    records = run(20, ["first", "second"], value)
    records[3].layers["first"].pop("grad_norm")
    text, root = drawn(records)["gradient_heatmap.svg"]
    for kind, told in ((LOST, "NaN or Inf"), (ZERO, "exactly zero"), (NONE, "not measured")):
        assert f'class="{kind}"' in text
        assert told in words(root)


def test_a_diverged_run_shows_its_onset_and_a_replay_of_it_step_by_step():
    records = run(30, ["first", "second"])
    near = run(34, ["first", "second"], lambda layer, step: 1e6 if step >= 30 else 1.0)
    found = drawn(records, divergence=divergence(30), near=near)
    assert "onset 30" in words(found["onset_heatmap.svg"][1])
    assert {"step 30", "step 33"} <= set(words(found["gradient_flow.svg"][1]))
    alone = drawn(records, divergence=divergence(30))
    assert "onset_heatmap.svg" not in alone
    assert any("stabexp locate" in text for text in words(alone["gradient_flow.svg"][1]))


def test_shares_of_zeros_are_shown_beside_the_flow_where_they_were_measured():
    records = run(10, ["first"])
    records[-1].layers["first"]["grad_zeros"] = 0.25
    assert "25 %" in words(drawn(records)["gradient_flow.svg"][1])


@pytest.mark.parametrize("layers", [1, 3, 400], ids=lambda n: f"{n} layers")
@pytest.mark.parametrize("steps", [1, 3000], ids=lambda n: f"{n} steps")
def test_a_picture_stays_small_and_whole_whatever_its_size(layers, steps):
    if layers * steps > 100_000:
        steps = 200
    names = [f"encoder.layer.{n}.attention.output.dense.{HOSTILE}" for n in range(layers)]
    found = drawn(run(steps, names, lambda layer, step: (step * 7919 % 1000 + 1) / 1000))
    for text, _ in found.values():
        assert len(text) < 600_000
        assert "<script" not in text


def test_nothing_is_drawn_where_no_step_measured_layers():
    assert drawn([StepRecord(step=0, time=0.0, loss=1.0, lr=0.1, grad_norm=1.0)]) == {}


def test_the_colours_rise_evenly_from_dark_to_light():
    def lightness(share):
        red, green, blue = (int(colour(share)[at : at + 2], 16) for at in (1, 3, 5))
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    shades = [lightness(at / 20) for at in range(21)]
    assert shades == sorted(shades)


def test_columns_further_apart_than_round_steps_have_one_label_each():
    measured = [record for record in run(30, ["a", "b"]) if record.step % 10 == 0]
    _, root = drawn(measured)["gradient_heatmap.svg"]
    places = [
        (element.get("x"), element.get("y"))
        for element in root.iter("{http://www.w3.org/2000/svg}text")
    ]
    assert {"0", "10", "20"} <= set(words(root))
    assert len(places) == len(set(places))
