"""What is asked by hand becomes an intervention or a patch, or is refused with a remedy."""

from __future__ import annotations

import pytest

from stabexp.bisection.by_hand import ByHand, changes_by_hand, dotted_keys
from stabexp.errors import ConfigError
from stabexp.experiment import Experiment
from stabexp.interventions import build
from stabexp.records import Change

KEYS = dotted_keys(Experiment)
RUN = {
    "task.name": "mlp",
    "optimizer.name": "sgd",
    "optimizer.lr": 0.1,
    "optimizer.weight_decay": 0.01,
    "schedule.name": "constant",
    "schedule.warmup_steps": 20,
    "clip": 2.0,
    "precision": "fp16",
    "batch.size": 32,
}
OWN_LOOP = {"train.name": "own.py:train", "precision": "fp32", "batch.size": 32}


def asked(*assignments, from_step=50, settings=RUN):
    return changes_by_hand(assignments, settings=settings, keys=KEYS, from_step=from_step)


@pytest.mark.parametrize(
    ("assignment", "variable", "dose"),
    [
        ("optimizer.lr=1e-3", "learning_rate", 0.01),
        ("optimizer.lr=0.1", "learning_rate", 1.0),
        ("optimizer.weight_decay=0", "weight_decay", 0.0),
        ("optimizer.weight_decay=0.1", "weight_decay", 10.0),
        ("schedule.warmup_steps=100", "warmup", 100),
        ("clip=1", "clip_norm", 1.0),
        ("precision=fp32", "precision", "fp32"),
        ("batch.size=128", "batch_size", 4),
        ("interventions.shuffle=1", "shuffle", 1),
        ("interventions.learning_rate=0.5", "learning_rate", 0.5),
        ("interventions.replace_samples=12", "replace_samples", "12"),
        ("loss_clamp=5", "loss_clamp", 5.0),
        ("skip_updates=20-22", "skip_updates", "20-22"),
        ("skip_updates=20", "skip_updates", "20"),
    ],
)
def test_from_a_checkpoint_a_key_becomes_an_intervention(assignment, variable, dose):
    found = asked(assignment)
    (change,) = found.changes
    assert (change.variable, change.dose, type(change.dose)) == (
        variable,
        pytest.approx(dose),
        type(dose),
    )
    assert not found.patch
    assert build(found.changes)


@pytest.mark.parametrize(
    ("assignment", "key", "value"),
    [
        ("optimizer.lr=1e-4", "optimizer.lr", 1e-4),
        ("batch.size=48", "batch.size", 48),
        ("clip=null", "clip", None),
        ("seed=3", "seed", 3),
        ("optimizer.betas=[0.9, 0.95]", "optimizer.betas", [0.9, 0.95]),
        ("task.args.width=8", "task.args.width", 8),
        ("task=gpt", "task", "gpt"),
        ("detectors.loss_spike.window=20", "detectors.loss_spike.window", 20),
    ],
)
def test_from_the_start_any_key_is_set_in_the_experiment(assignment, key, value):
    assert asked(assignment, from_step=0) == ByHand(patch={key: value})


def test_several_are_asked_at_once():
    found = asked("optimizer.lr=0.05", "interventions.shuffle=1", from_step=0)
    assert found.changes == (Change(variable="shuffle", dose=1),)
    assert found.patch == {"optimizer.lr": 0.05}


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        ("optimizer.lr", r"--set optimizer.lr: expected key=value"),
        ("=1", r"--set =1: expected key=value"),
        ("optimzer.lr=1", r"unknown key; did you mean 'optimizer.lr'\?"),
        ("batch.sise=1", r"unknown key; did you mean 'batch.size'\?"),
        ("task.nam=x", r"unknown key; did you mean 'task.name'"),
        ("skip_update=3", r"unknown key; did you mean 'skip_updates'\?"),
        ("zzz=1", r"unknown key; stabexp schema lists them"),
        ("name=better", r"does not decide how the training goes"),
        ("bisect.workers=1", r"does not decide how the training goes"),
        ("seed=3", r"can only be changed from the start: add --from 0. From step 50 can be"),
        ("optimizer.momentum=0.5", r"can only be changed from the start"),
        ("optimizer.lr=fast", r"--set optimizer.lr=fast: expected a number"),
        ("optimizer.lr=-1", r"--set optimizer.lr=-1: expected greater than or equal to 0"),
        ("optimizer.lr=[1", r"--set optimizer.lr=\[1: the value is not valid YAML"),
        ("precision=fp8", r"--set precision=fp8: expected 'fp32', .* found 'fp8'"),
        ("clip=null", r"can be added from a checkpoint, not removed; add --from 0"),
        ("clip=5", r"the run clips at 2, and from a checkpoint it can only clip more"),
        ("batch.size=48", r"a multiple of the run's 32 samples, for example 64 or 128"),
        ("batch.size=16", r"a multiple of the run's 32 samples"),
        ("interventions.shufle=1", r"unknown intervention; did you mean 'shuffle'"),
        ("interventions.batch_size=1.5", r"expected a valid integer"),
    ],
)
def test_what_cannot_be_done_from_a_checkpoint_is_refused_with_a_remedy(assignment, says):
    with pytest.raises(ConfigError, match=says):
        asked(assignment)


def test_a_key_is_given_once():
    with pytest.raises(ConfigError, match="clip is given twice"):
        asked("clip=1", "clip=2")


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        ("optimizer.lr=1", r"interventions.learning_rate=FACTOR"),
        ("schedule.warmup_steps=9", r"interventions.warmup=STEPS"),
        ("batch.size=64", r"interventions.batch_size=FACTOR"),
        ("optimizer.eps=1", r"train.args.NAME=VALUE"),
    ],
)
def test_a_loop_of_ones_own_is_pointed_to_what_acts_there(assignment, says):
    with pytest.raises(ConfigError, match=says):
        asked(assignment, settings=OWN_LOOP)
    assert asked("clip=1", settings=OWN_LOOP).changes == (Change(variable="clip_norm", dose=1.0),)


def test_a_factor_of_nothing_is_refused():
    with pytest.raises(ConfigError, match=r"own value is 0.0, which no factor brings there"):
        asked("optimizer.weight_decay=0.1", settings={**RUN, "optimizer.weight_decay": 0.0})


def test_a_multiple_that_the_run_has_already_is_kept():
    found = asked("batch.size=64", settings={**RUN, "interventions.batch_size": 2})
    assert found.changes == (Change(variable="batch_size", dose=4),)


@pytest.mark.parametrize(
    ("assignment", "settings", "says"),
    [
        ("schedule.warmup_steps=100", RUN, "the ramp is at 51% of the rate at step 50"),
        ("schedule.warmup_steps=40", RUN, "both ramps are over at step 50"),
        (
            "interventions.shuffle=2",
            {**RUN, "interventions.shuffle": 1},
            "interventions.shuffle is 1 in the run already; both apply",
        ),
        ("optimizer.lr=0.05", RUN, None),
    ],
)
def test_what_one_may_not_expect_is_said(assignment, settings, says):
    notices = asked(assignment, settings=settings).notices
    assert [notice.startswith(says or "") for notice in notices] == ([True] if says else [])


def test_every_key_of_the_experiment_file_is_known():
    assert {"seed", "task", "task.args.*", "optimizer.betas", "interventions.*"} <= set(KEYS)
    assert "bisect.variables" in KEYS
