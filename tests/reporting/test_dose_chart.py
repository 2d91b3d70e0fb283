from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace

import pytest

from stabexp.records import Change, TrialRecord, TrialSpec
from stabexp.reporting import words
from stabexp.reporting.dose_chart import BOTTOM, HORIZON, LEFT, RIGHT, TOP, dose_chart


def trial(variable, dose, outcome, *, end=1.0, number=0, survived=50):
    found = None
    if outcome in {"diverged", "delayed"}:
        from stabexp.records import Divergence

        found = Divergence(
            detector="loss_spike",
            detected=100 + survived,
            onset=99 + survived,
            pattern="sudden_jump",
            value=9.0,
            limit=3.0,
            message="it jumped",
        )
    return TrialRecord(
        spec=TrialSpec(
            role="dose",
            changes=(Change(variable=variable, dose=dose),),
            from_step=100,
            until_step=300,
        ),
        outcome=outcome,
        last_step=299,
        divergence=found,
        start_loss=2.0,
        end_loss=end,
        number=number,
    )


def places(svg):
    """Return (x, y) of each trial's mark, in the order in which they are drawn."""
    found = re.findall(r'<g class="dot \w+">.*?class="ground" cx="([\d.]+)" cy="([\d.]+)"', svg)
    return [(float(x), float(y)) for x, y in found]


RATES = [
    trial("learning_rate", 0.5, "diverged", survived=40),
    trial("learning_rate", 0.25, "cured", end=1.2),
    trial("learning_rate", 0.1, "cured", end=1.5),
    trial("learning_rate", 0.001, "stalled", end=1.99),
]


def test_stronger_doses_lie_further_right_on_a_logarithmic_axis():
    xs = [x for x, _ in places(dose_chart("learning_rate", RATES, name="d"))]
    assert xs == sorted(xs)
    decades = [math.log10(0.5 / 0.25), math.log10(0.25 / 0.1), math.log10(0.1 / 0.001)]
    widths = [b - a for a, b in itertools.pairwise(xs)]
    assert widths[2] / widths[0] == pytest.approx(decades[2] / decades[0], rel=0.02)


def test_what_diverged_lies_below_the_horizon_and_higher_the_longer_it_held():
    trials = [
        trial("warmup", 10, "diverged", survived=20),
        trial("warmup", 50, "delayed", survived=150),
        trial("warmup", 100, "cured", end=1.0),
    ]
    ys = [y for _, y in places(dose_chart("warmup", trials, name="d"))]
    assert ys[0] > ys[1] > HORIZON > ys[2] > TOP


def test_what_survived_lies_higher_the_lower_its_loss_ended():
    ys = [y for _, y in places(dose_chart("learning_rate", RATES, name="d"))]
    assert ys[1] < ys[2] < ys[3] < HORIZON < ys[0] < BOTTOM


@pytest.mark.parametrize(
    ("variable", "doses"),
    [
        ("learning_rate", [0.7]),
        ("learning_rate", [1e-300, 5e-324]),
        ("clip_norm", [4.0, 1.0]),
        ("clip_norm", [0.0, -1.0]),
        ("precision", ["bf16", "fp32", "<b>"]),
        ("warmup", [10, 10, 10]),
        ("batch_size", [2, 4, 10**9]),
        ("my own", ["x", 3]),
    ],
)
@pytest.mark.parametrize("end", [1.0, math.nan, math.inf, -3.0, 0.0])
def test_every_mark_lies_inside_the_picture_for(variable, doses, end):
    outcomes = ["cured", "diverged", "inconclusive"]
    trials = [
        trial(variable, dose, outcomes[at % 3], end=end, number=at) for at, dose in enumerate(doses)
    ]
    svg = dose_chart(variable, trials, name="d", control=replace(trials[0], number=9))
    assert "nan" not in svg.replace("NaN", "")
    assert "<b>" not in svg
    for x, y in places(svg):
        assert LEFT <= x <= RIGHT
        assert TOP <= y <= BOTTOM


def test_the_mildest_robust_cure_and_the_stretch_with_the_edge_are_marked(bisect):
    trials = words.ladders(bisect.trials)["learning_rate"]
    cure = bisect.verdict.cures[0]
    svg = dose_chart("learning_rate", trials, name="d", cure=cure, control=bisect.trials[0])
    assert "mildest robust cure" in svg
    at = {record.spec.dose: x for record, (x, _) in zip(trials, places(svg), strict=True)}
    x, width = map(
        float, re.findall(r'edge-band" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', svg)[0]
    )
    assert (x, x + width) == (
        pytest.approx(at[0.5], abs=0.2),
        pytest.approx(at[0.25], abs=0.2),
    )
    assert 'class="control"' in svg
    fragile = dose_chart("learning_rate", trials, name="d", cure=replace(cure, robust=False))
    assert "edge-band" not in fragile


def test_a_value_that_was_not_set_has_a_place_left_of_all_doses(bisect):
    trials = words.ladders(bisect.trials)["clip_norm"]
    cure = bisect.verdict.cures[1]
    svg = dose_chart("clip_norm", trials, name="d", cure=cure, control=bisect.trials[0])
    control = float(re.findall(r'<g class="control">.*?cx="([\d.]+)"', svg)[0])
    assert control < min(x for x, _ in places(svg)) - 30
    assert ">as it was<" in svg


def test_labels_never_cover_each_other():
    trials = [trial("learning_rate", 0.9**at, "cured", number=at) for at in range(1, 30)]
    svg = dose_chart("learning_rate", trials, name="d")
    found = re.findall(r'<text x="([\d.]+)" y="230.0" text-anchor="middle">([^<]*)<', svg)
    assert len(found) > 3
    spans = sorted((float(x) - len(t) * 3.2, float(x) + len(t) * 3.2) for x, t in found)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))


def test_the_picture_is_described_in_words():
    svg = dose_chart("learning_rate", RATES, name="d")
    assert "×0.5 diverged, ×0.25 cured, ×0.1 cured, ×0.001 stalled" in svg
