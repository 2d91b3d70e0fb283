"""Which remedies the rules name, from figures alone."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from stabexp.records import Change, Cure, Divergence, StepRecord, TrialRecord, TrialSpec, Verdict
from stabexp.recovery import (
    Picture,
    Remedy,
    Window,
    best_rate,
    incident_of,
    learns_best,
    remedies_for,
    settings_of,
    split_batch,
    window_after,
)
from stabexp.recovery.layers import LayerDiagnosis, layers_of, only
from stabexp.recovery.learned import shortfall

CRASH = Divergence(
    detector="divergence",
    detected=62,
    onset=60,
    pattern="sudden_jump",
    value=9.0,
    limit=2.0,
    message="the loss left its floor",
)


def records(**changed):
    """Return 63 steps, calm but for what is given for the last three: name → three values."""
    made = []
    for step in range(63):
        record = StepRecord(
            step=step,
            time=0.0,
            loss=1.0 + 0.01 * math.sin(step),
            lr=0.1,
            grad_norm=2.0 + 0.05 * math.cos(step),
            update_ratio=1e-3,
            param_norm=10.0,
            sample_ids=(2 * step, 2 * step + 1),
        )
        if step >= 60:
            record = replace(record, **{k: v[step - 60] for k, v in changed.items()})
        made.append(record)
    return made


JUMP = {"loss": (90.0, 80.0, 95.0), "grad_norm": (300.0, 90.0, 80.0)}
LOCATED = {
    "operation": "log",
    "source": "train.py:31",
    "module": "",
    "kind": "inf",
    "phase": "forward",
    "reason": "log_of_zero",
    "step": 60,
    "sample_ids": [],
}
BURSTS = [
    replace(r, grad_norm=40.0) if r.step in (20, 40) else r
    for r in records(grad_norm=(60.0, 9.0, 9.0), loss=(1.0, 9.0, 9.0))
]
LOST = records(update_ratio=(0.5, 0.2, 0.2), loss=(1.0, 9.0, 9.0))


@pytest.mark.parametrize(
    ("given", "first"),
    [
        pytest.param({"reproduced": False}, "plain_resume", id="a single event"),
        pytest.param({"located": LOCATED}, "safe_operation", id="log of zero"),
        pytest.param(
            {"located": {**LOCATED, "phase": "input", "sample_ids": [7]}},
            "replace_samples",
            id="NaN in one sample",
        ),
        pytest.param({"records": records(lr=(2.0, 2.0, 2.0))}, "hold_rate", id="rate jumped"),
        pytest.param({"records": LOST}, "keep_optimizer_state", id="a giant update"),
        pytest.param({"half": True}, "wider_format", id="half precision"),
        pytest.param({"records": records(**JUMP)}, "replace_samples", id="a bad batch"),
        pytest.param({"records": BURSTS}, "clip_gradients", id="gradients in bursts"),
        pytest.param(
            {"records": records(**JUMP), "samples_blamed": True},
            "clip_gradients",
            id="a second bad batch is a long tail",
        ),
        pytest.param({}, "clip_gradients", id="nothing speaks: the documents' rules"),
    ],
)
def test_the_first_remedy_is_that_of_what_stands_out(given, first):
    picture = Picture(
        **{"records": records(loss=(1.02, 1.02, 1.02)), "crash": CRASH, "fork": 50, **given}
    )
    found = remedies_for(picture)
    assert found[0].name == first
    assert [r.name for r in found][-2:] == ["conservative", "restart"]
    assert all(r.why for r in found)


def test_clip_and_clamp_are_the_runs_own_and_the_documents_where_it_has_none():
    calm = Picture(records=records(loss=(1.02, 1.02, 1.02)), crash=CRASH, fork=50)
    at_once = replace(calm, records=[], crash=replace(CRASH, onset=0, detected=2), fork=0)
    doses = [
        {c.variable: c.dose for r in remedies_for(p) if r.name == "conservative" for c in r.changes}
        for p in (calm, at_once)
    ]
    assert doses[0]["clip_norm"] == pytest.approx(4.0, rel=0.03)
    assert doses[0]["loss_clamp"] == pytest.approx(3.03, rel=0.01)
    assert doses[1]["clip_norm"] == 0.5
    assert doses[1]["loss_clamp"] == 100.0


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        ("FINISHED", "", None),
        ("RUNNING", "", "killed"),
        ("KILLED", "", "killed"),
        ("FAILED", "train.py:9: at step 3: OutOfMemoryError: CUDA out of memory.", "out_of_memory"),
        (
            "FAILED",
            "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 9",
            "out_of_memory",
        ),
        ("FAILED", "train.py:9: at step 3: KeyError: 'label'", "raised"),
    ],
)
def test_how_a_run_ended(status, error, kind):
    found = incident_of(status=status, divergence=None, error=error, last_step=7)
    assert (found and found.kind) == kind
    assert found is None or found.step == 8


@pytest.mark.parametrize(
    ("size", "accumulate", "times", "split"),
    [
        (32, 1, 1, (16, 2)),
        (32, 2, 2, (8, 8)),
        (9, 1, 1, (3, 3)),
        (7, 2, 1, (1, 14)),
        (1, 4, 1, None),
    ],
)
def test_a_split_batch_has_the_same_samples_per_update(size, accumulate, times, split):
    assert split_batch(size, accumulate, times=times) == split


def test_settings_add_to_what_the_run_has_and_a_window_can_do_the_easing():
    slower = Remedy(
        name="lower_rate",
        why="",
        changes=(Change(variable="learning_rate", dose=0.5), Change(variable="clip_norm", dose=3)),
    )
    window = Window(first=50, last=90)
    had = {"learning_rate": 0.5, "clip_norm": 2.0}
    assert settings_of(slower, had, window, give_back=False) == {
        "interventions.learning_rate": 0.25,
        "interventions.clip_norm": 2.0,
    }
    given_back = settings_of(slower, had, window, give_back=True)
    assert given_back["stabilisers.danger_window.rate"] == 0.5
    assert given_back["stabilisers.danger_window.ramp"] == 20
    assert not any(key.startswith("interventions") for key in given_back)
    again = settings_of(slower, had, window, give_back=True, eased={"ramp": 20, "rate": 0.5})
    assert "interventions.learning_rate" in again  # given back once, and crashed again
    bad = Remedy(
        name="replace_samples", why="", changes=(Change(variable="replace_samples", dose="3,4"),)
    )
    settings = settings_of(bad, {"replace_samples": "1,3"}, window, give_back=False)
    assert settings == {"interventions.replace_samples": "1,3,4"}


def test_of_remedies_that_end_alike_the_mildest_is_chosen():
    mild, strong = (Remedy(name="lower_rate", why=w) for w in ("mild", "strong"))
    assert learns_best([(1.005, mild), (1.0, strong)]) is mild
    assert learns_best([(1.20, mild), (1.0, strong)]) is strong
    assert learns_best([]) is None


@pytest.mark.parametrize(("end", "learned"), [(1.0, True), (3.0, False), (math.nan, False)])
def test_a_run_that_ends_above_what_had_been_reached_has_not_come_back(end, learned):
    ended = [replace(record, loss=end) for record in records()]
    falling = [replace(r, loss=3.0 - r.step / 30) for r in records()]
    assert (shortfall(ended, falling, CRASH) == "") is learned


def test_the_window_ends_well_past_the_crash_and_inside_the_run():
    assert window_after(50, CRASH, steps=400) == Window(first=50, last=89)
    assert window_after(50, CRASH, steps=70) == Window(first=50, last=70)


def test_layers_are_grouped_by_the_beginnings_of_their_names():
    parameters = [f"blocks.{i}.attn.weight" for i in range(9)]
    parameters += [f"blocks.{i}.mlp.weight" for i in range(9)] + ["head.weight", "scale"]
    assert layers_of(parameters, most=12)[:2] == ("blocks.0", "blocks.1")
    assert len(layers_of(parameters, most=12)) == 10
    assert layers_of(["0.weight", "0.bias", "2.weight"]) == ("0", "2")
    assert only(["head"]) == "*=0,head=1"


@pytest.mark.parametrize(
    ("alone", "without", "fault"),
    [
        ({"a": "stalled", "b": "diverged"}, {"a": "diverged", "b": "cured"}, ("b",)),
        ({"a": "stalled", "b": "cured"}, {"a": "diverged", "b": "cured"}, ("b",)),
        ({"a": "cured", "b": "cured"}, {"a": "diverged", "b": "delayed"}, ("a",)),
    ],
)
def test_the_layer_at_fault_is_enough_and_needed(alone, without, fault):
    found = LayerDiagnosis(
        run_id="r",
        from_step=0,
        detected=9,
        batches=(),
        held_out={},
        alone=alone,
        without=without,
        from_the_top=("b", "a"),
    )
    assert found.at_fault == fault


def rate_trial(dose, end, *, outcome="cured", until=90):
    change = Change(variable="learning_rate", dose=dose)
    spec = TrialSpec(role="dose", changes=(change,), from_step=50, until_step=until)
    return TrialRecord(spec=spec, outcome=outcome, last_step=until - 1, end_loss=end)


@pytest.mark.parametrize(
    ("trials", "fix"),
    [
        pytest.param([(0.5, 1.0), (0.25, 0.6), (0.1, 0.8)], 0.05, id="one that learned better"),
        pytest.param([(0.5, 1.0), (0.25, 0.999)], 0.1, id="alike: the mildest"),
        pytest.param([(0.5, 1.0)], 0.1, id="no other"),
    ],
)
def test_of_the_rates_that_cure_the_one_that_learned_best_is_gone_on_with(trials, fix):
    cure = Cure(
        variable="learning_rate",
        dose=0.5,
        original=1.0,
        stronger_dose=0.25,
        milder_dose=None,
        robust=True,
        trial="",
        removed=0.5,
    )
    verdict = Verdict(
        run_id="r",
        bisect_id="b",
        cause="learning_rate",
        confidence=0.98,
        summary="The rate is too high.",
        path=(),
        cures=(cure,),
        fix={"optimizer.lr": 0.1},
        divergence=CRASH,
        good_step=50,
    )
    made = [rate_trial(*trial) for trial in trials]
    made.append(rate_trial(0.05, 0.1, outcome="stalled"))
    made.append(rate_trial(0.02, 0.1, until=60))
    found, told = best_rate(verdict, made)
    assert found == {"optimizer.lr": fix}
    assert bool(told) is (fix != 0.1)
    assert best_rate(replace(verdict, cause="schedule"), made)[0] == {"optimizer.lr": 0.1}
