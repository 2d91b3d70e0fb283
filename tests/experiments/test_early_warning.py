"""A few programs of the published record, trained anew: warned of early, or not at all."""

from __future__ import annotations

import pytest

from experiments.early_warning.page import page
from experiments.early_warning.programs import FAMILIES, Draw, draws, records_of
from experiments.early_warning.score import EARLY, scored


def judged(scenario, family, number=0, half="made_on"):
    draw = Draw(half=half, scenario=scenario, family=family, number=number)
    assert draw in draws(half)
    return scored(draw, records_of(draw))


@pytest.mark.parametrize(
    ("scenario", "family", "number"),
    [
        ("rate_ramp", "mlp", 4),
        ("logit_drift", "mlp", 6),
        ("weight_growth", "two_tower", 6),
        ("half_headroom", "cnn", 8),
        ("edge_of_stability", "autoencoder", 0),
    ],
)
def test_a_slow_decline_is_warned_of_early_and_never_too_early(scenario, family, number):
    found = judged(scenario, family, number)
    assert found.told[""].lead >= EARLY
    assert found.told[""].named
    assert found.told[""].false == 0


@pytest.mark.parametrize("scenario", ["restarts", "long_warmup", "curriculum"])
def test_a_clean_run_is_not_warned_of(scenario):
    found = judged(scenario, "mlp")
    assert found.left is None or scenario == "curriculum"
    assert found.told[""].false == 0
    assert found.clean_steps == 400


def test_a_blow_is_not_predicted():
    found = judged("rate_jump", "mlp", 4)
    assert found.left is not None
    assert found.told[""].lead == 0


def test_the_page_has_a_line_for_every_class_and_never_mixes_the_halves():
    one = {half: [judged("rate_jump", FAMILIES[half][0], half=half)] for half in FAMILIES}
    text = page(one, FAMILIES)
    assert "| rate_jump (rules made on) | 1 | " in text
    assert "| rate_jump (scored on) | 1 | " in text
    assert not {draw.name for draw in draws("made_on")} & {draw.name for draw in draws("scored_on")}
