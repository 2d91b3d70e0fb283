"""A schedule that jumps, a state that is lost, weights that start wild or are eaten."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bisection.scripted_facts import facts, shown
from bisection.scripted_world import DETECTED, ONSET, divergence, step_records

from stabexp.bisection.evidence import state


def run_with(field, values):
    """Return the run with a field set per step: a number for all, or a function of the step."""
    value = values if callable(values) else lambda step: values
    return [replace(r, **{field: value(r.step)}) for r in step_records()]


def jump(at, factor, base=0.1):
    return lambda step: base * factor if step >= at else base


@pytest.mark.parametrize(
    ("rates", "rose"),
    [
        pytest.param(jump(ONSET, 3), (0.1, 0.3), id="at the onset"),
        pytest.param(jump(ONSET - 5, 3), (0.1, 0.3), id="five steps before it"),
        pytest.param(jump(ONSET - 6, 3), (0.1, 0.3), id="six steps before it, still not usual"),
        pytest.param(jump(ONSET - 20, 3), None, id="long before it: that is the rate by now"),
        pytest.param(jump(ONSET + 2, 3), (0.1, 0.3), id="an onset found two steps too early"),
        pytest.param(jump(DETECTED, 3), (0.1, 0.3), id="an onset found far too early"),
        pytest.param(jump(DETECTED + 1, 3), None, id="after the crash was noticed"),
        pytest.param(jump(ONSET, 1.5), None, id="by half only"),
        pytest.param(jump(ONSET, 1.6), (0.1, 0.16), id="by more than half"),
        pytest.param(jump(ONSET, 0.1), None, id="downwards"),
        pytest.param(0.1, None, id="constant"),
        pytest.param(float("nan"), None, id="not recorded"),
        pytest.param(lambda s: min(1.0, (s + 1) / 40), None, id="a ramp from the first step"),
        pytest.param(0.0, None, id="zero"),
    ],
)
def test_a_schedule_raised_the_rate_when(rates, rose):
    given = facts(records=run_with("lr", rates), setup={"warmup_steps": 0})
    found = state.rate_rose(given)
    assert found == (pytest.approx(rose) if rose else None)


@pytest.mark.parametrize("onset", [4, 9])
def test_too_early_there_is_no_rate_to_compare_with(onset):
    crash = divergence(onset + 6, onset)
    given = facts(records=run_with("lr", jump(onset, 9)), divergence=crash)
    assert state.rate_rose(given) is None


@pytest.mark.parametrize(
    ("change", "jumped"),
    [
        pytest.param({"update_ratio": 4e-3}, 4.0, id="updates jump alone"),
        pytest.param({"update_ratio": 4e-3, "grad_norm": 4.0}, None, id="gradients jump as well"),
        pytest.param({"update_ratio": 16e-3, "grad_norm": 4.0}, 4.0, id="updates jump further"),
        pytest.param({"update_ratio": 2.9e-3}, None, id="not far enough"),
        pytest.param({"update_ratio": float("inf")}, None, id="not finite"),
        pytest.param({}, None, id="nothing"),
    ],
)
@pytest.mark.parametrize("at", [ONSET - 2, ONSET, ONSET + 1])
def test_the_optimizer_lost_something_when(change, jumped, at):
    calm = {"update_ratio": 1e-3, "grad_norm": 1.0}
    records = [replace(r, **(calm | change if r.step == at else calm)) for r in step_records()]
    assert state.update_jumped(facts(records=records)) == (
        pytest.approx(jumped) if jumped else None
    )


@pytest.mark.parametrize(
    ("first", "guess", "wild"),
    [
        (6.9, 2.3, True),
        (6.7, 2.3, False),
        (float("nan"), 2.3, True),
        (float("inf"), 2.3, True),
        (99.0, None, False),
    ],
)
def test_the_first_loss_is_wild_when_it_is_far_above_guessing(first, guess, wild):
    records = [replace(step_records()[0], loss=first), *step_records()[1:]]
    given = facts(records=records, setup={"trivial_loss": guess})
    assert state.first_loss_wild(given) == wild
    assert not state.first_loss_wild(replace(given, records=records[1:]))


@pytest.mark.parametrize(
    ("decay", "norms", "rate", "suspected"),
    [
        pytest.param(0.1, lambda s: 10 - 0.2 * s, 0.1, True, id="the weights shrank"),
        pytest.param(0.1, lambda s: 10 - 0.01 * s, 0.1, False, id="they did not"),
        pytest.param(2.0, lambda s: 10, 0.1, True, id="a fifth of every weight in every update"),
        pytest.param(0.0, lambda s: 10 - 0.2 * s, 0.1, False, id="no decay, whatever shrank"),
        pytest.param(2.0, lambda s: float("nan"), 0.1, False, id="no norms recorded"),
    ],
)
def test_weight_decay_is_suspected_when(decay, norms, rate, suspected):
    records = [replace(r, lr=rate) for r in run_with("param_norm", norms)]
    given = facts(records=records, setup={"weight_decay": decay})
    assert state.decay_suspected(given) == suspected


SUSPECTED = {
    "schedule": {"records": run_with("lr", jump(ONSET, 3))},
    "optimizer_state": {
        "records": [
            replace(r, update_ratio=8e-3 if r.step == ONSET else 1e-3, grad_norm=1.0)
            for r in step_records()
        ]
    },
    "initialisation": {
        "records": [replace(step_records()[0], loss=50.0), *step_records()[1:]],
        "setup": {"trivial_loss": 2.3},
    },
    "weight_decay": {
        "records": run_with("param_norm", lambda s: 10 - 0.2 * s),
        "setup": {"weight_decay": 0.1},
    },
}
ASK = {name: getattr(state, name) for name in SUSPECTED}


@pytest.mark.parametrize("name", SUSPECTED)
@pytest.mark.parametrize(
    ("letter", "text"), [("c", "yes"), ("d", "no"), ("l", "no"), ("s", "no"), ("i", "no")]
)
def test_what_is_suspected_is_the_cause_only_when_the_run_trains_through_without_it(
    name, letter, text
):
    test = shown(letter, f"{name} off", role="test")
    answer = ASK[name](facts(tests={name: test}, **SUSPECTED[name]))
    assert answer.text == text
    assert answer.cure == (test.spec.key if text == "yes" else "")
    assert answer.trials == (test.spec.key,)


@pytest.mark.parametrize("name", SUSPECTED)
def test_what_is_suspected_and_could_not_be_tried_is_not_answered_no(name):
    assert ASK[name](facts(**SUSPECTED[name])).text == "not tried"


@pytest.mark.parametrize("name", SUSPECTED)
def test_what_is_not_suspected_is_no_cause_whatever_cures(name):
    test = shown("c", f"{name} off", role="test")
    assert ASK[name](facts(tests={name: test})).text == "no"


def held_out(values, *, train=1.0, name="val_loss"):
    records = []
    for r in step_records():
        metrics = {name: values[r.step // 10]} if r.step % 10 == 0 else {}
        records.append(replace(r, loss=train, metrics=metrics))
    return facts(records=records)


@pytest.mark.parametrize(
    ("yes", "given"),
    [
        pytest.param(True, held_out([3.0, 2.0, 2.4, 2.6, 3.0]), id="far below, and it rises"),
        pytest.param(False, held_out([3.0, 2.0, 1.9, 1.8, 1.7]), id="it falls"),
        pytest.param(False, held_out([3, 2, 2.4, 2.6, 3], train=1.6), id="not far below"),
        pytest.param(False, held_out([2.0, 2.1, 2.2, 2.3, 2.3]), id="it hardly rises"),
        pytest.param(False, held_out([3, 2, 2.4, 2.6, 3], name="accuracy"), id="another metric"),
        pytest.param(False, facts(), id="nothing logged"),
        pytest.param(True, held_out([3, 2, 2.4, 2.6, float("nan")]), id="the last one not finite"),
    ],
)
def test_a_run_learns_by_heart_when_its_loss_is_far_below_that_of_held_out_data(yes, given):
    answer = state.overfitting(given)
    assert answer.yes == yes, answer.detail
    assert len(step_records()) == DETECTED + 1
