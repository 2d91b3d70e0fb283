"""Every symptom is found with its figures, and ordinary trainings give no finding."""

from __future__ import annotations

import math
import random

import pytest
from detectors.conftest import make
from detectors.test_false_alarms import HEALTHY, healthy_run

from stabexp.detectors import build, opinion
from stabexp.diagnosis.judging import first_finding
from stabexp.findings import findings_of, limits_of

NAN = math.nan
RNG = random.Random(0)
NOISY = [2.3 * math.exp(-k / 80) + 0.3 + 0.03 * RNG.gauss(0, 1) for k in range(200)]
NORMS = [RNG.lognormvariate(0, 0.4) for _ in range(200)]


def found(records, **settings):
    divergence = first_finding(build({}), records, first_step=0)
    view = opinion(records, divergence, settings) if divergence else None
    return findings_of(records, divergence=divergence, settings=settings, opinion=view)


def symptoms(records, **settings):
    return [finding.symptom for finding in found(records, **settings)]


def layered(count, figures):
    """Return healthy steps whose layers have the gradient norms that `figures(step)` gives."""
    records = make(*NOISY[:count], grad_norms=NORMS[:count])
    return [
        make(record.loss, grad_norms=[record.grad_norm], step=record.step, layers=figures(step))[0]
        if step % 5 == 0
        else record
        for step, record in enumerate(records)
    ]


@pytest.mark.parametrize(
    ("symptom", "records"),
    [
        pytest.param(
            "exploding_gradient",
            make(*NOISY, grad_norms=[*NORMS[:198], 60.0, 1.0]),
            id="sixty times the usual norm",
        ),
        pytest.param(
            "exploding_gradient",
            make(*NOISY, grad_norms=[*(n / 1000 for n in NORMS[:198]), 0.2, 0.001]),
            id="the same at a thousandth, far below the documents' 5",
        ),
        pytest.param(
            "exploding_gradient", make(*NOISY[:20], grad_norms=[6.0] * 20), id="too short to know"
        ),
        pytest.param(
            "vanishing_gradient", make(*([2.3] * 60), grad_norms=[1e-8] * 60), id="never any"
        ),
        pytest.param(
            "vanishing_gradient",
            make(*([2.3] * 200), grad_norms=[*NORMS[:190], *([1e-6] * 10)]),
            id="a millionth of the usual, above the documents' 1e-7",
        ),
        pytest.param(
            "oscillating",
            make(*NOISY[:179], *([0.2, 0.2, 1.8] * 7), grad_norms=NORMS),
            id="swings that were not there before",
        ),
        pytest.param("not_decreasing", make(*(2.3 + 0.01 * n for n in NORMS)), id="nothing learnt"),
    ],
)
def test_a_symptom_is_found(symptom, records):
    assert symptom in symptoms(records)


@pytest.mark.parametrize("curve", HEALTHY, ids=lambda curve: curve.__name__)
def test_a_healthy_run_of_any_kind_that_learns_gives_no_finding(curve):
    seen = set(symptoms(healthy_run(make, curve, 3)))
    learns_nothing = curve.__name__ in {"still", "policy_gradient"}
    assert seen <= ({"not_decreasing"} if learns_nothing else set())


def test_limits_are_multiples_of_what_the_run_does_and_the_documents_figures_without_a_run():
    assert (limits_of([]).exploding, limits_of([]).vanishing) == (5.0, 1e-7)
    small = limits_of(make(*NOISY, grad_norms=[n / 1000 for n in NORMS]))
    large = limits_of(make(*NOISY, grad_norms=[n * 1000 for n in NORMS]))
    assert large.exploding == pytest.approx(1e6 * small.exploding)
    assert small.exploding < 0.05
    assert large.alarm > 1000 > 0.9 * limits_of([]).alarm


def test_loss_is_told_from_gradient_by_the_nan_checklist():
    (lost, nan, *_) = found(make(*NOISY[:50], NAN, NAN, NAN), precision="fp32")
    assert (lost.symptom, nan.symptom, nan.first_step) == ("explosion", "non_finite", 50)
    text = " ".join(nan.evidence)
    assert "nothing" not in text
    assert "came out of nowhere" in text
    assert "no number is lost to half precision" in text
    against = [likely.cause for likely in nan.likely if likely.weight == "against"]
    assert {"precision", "underflow"} <= set(against)


def test_steps_that_a_gradient_scaler_skips_are_no_finding():
    records = make(*NOISY, grad_norms=NORMS)
    records[100] = make(1.0, grad_norms=[math.inf], step=100, skipped=True, nonfinite_grads=3)[0]
    assert symptoms(records, precision="fp16") == []


def test_growth_is_a_divergence_and_a_jump_an_explosion():
    grown = make(*NOISY[:60], *(1.3 * 1.25**k for k in range(25)))
    jumped = make(*NOISY[:60], *([9000.0] * 6))
    assert symptoms(grown)[0] == "divergence"
    assert symptoms(jumped)[0] == "explosion"


def test_a_run_at_chance_level_is_told_to_be_there():
    (finding, *_) = found(make(*NOISY[:60], *([2.4] * 20)), trivial_loss=2.303)
    assert any("chance level" in text for text in finding.evidence)


def test_the_first_layer_to_explode_and_the_one_that_died_are_named():
    def blown(step):
        late = step >= 100
        return {
            "first": {"grad_norm": 500.0 if step >= 110 else 1.0, "weight_norm": 1.0},
            "second": {"grad_norm": 50.0 if late else 1.0, "weight_norm": 1.0},
            "third": {"grad_norm": 1.0, "weight_norm": 1.0},
        }

    records = layered(100, blown)
    records += [
        make(30.0, grad_norms=[40.0], step=s, layers=blown(s) if s % 10 == 0 else None)[0]
        for s in range(100, 125)
    ]
    (lost, *_) = found(records)
    assert lost.layers == ("second",)
    assert "first seen at step 100 in second: gradient 50 times" in " ".join(lost.evidence)

    (dead,) = found(
        layered(
            200,
            lambda step: {
                f"layer{n}": {"grad_norm": 1e-9 if n == 2 and step >= 20 else 1.0, "weight_norm": 1}
                for n in range(4)
            },
        )
    )
    assert (dead.symptom, dead.layers) == ("degenerate_layer", ("layer2",))


def test_learning_by_heart_is_found_where_a_held_out_loss_was_logged():
    records = make(*(max(0.02, 2.3 - 0.02 * k) for k in range(200)), grad_norms=NORMS)
    held = {20: 1.9, 60: 1.5, 120: 2.2, 180: 3.0}
    records = [
        make(r.loss, grad_norms=[1.0], step=r.step, metrics={"val_loss": held[r.step]})[0]
        if r.step in held
        else r
        for r in records
    ]
    (finding,) = found(records)
    assert (finding.symptom, finding.first_step) == ("overfitting", 60)
    assert finding.likely[0].cause == "regularisation"


def test_what_the_run_speaks_for_comes_first_and_the_rate_policy_where_nothing_speaks():
    bursts = make(*NOISY[:60], *([9.0] * 10), grad_norms=[*NORMS[:59], 40.0, *([40.0] * 10)])
    spoken = found(bursts, clip_norm=None, batch_size=32, precision="fp32", warmup_steps=10)
    assert spoken[0].likely[0].cause == "clip_norm"
    silent = next(f for f in found(make(*([2.3] * 150))) if f.symptom == "not_decreasing")
    assert silent.likely[0].cause == "learning_rate"
    assert silent.likely[0].weight == ""
