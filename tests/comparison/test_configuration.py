"""Settings that move together stay together, and every patch makes the run it is meant to make."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stabexp.comparison import differing_keys, patch_for, settings_of
from stabexp.config import parse_document, patched
from stabexp.experiment import flat, from_document

BASE = "name: x\nthreads: 1\n"
MLP = "task: {name: mlp, args: {width: 8}}\noptimizer: {name: sgd, lr: 0.1}\n"
EXPERIMENTS = [
    BASE + MLP,
    BASE + MLP + "clip: 1.0\nseed: 4\n",
    BASE + "task: mlp\noptimizer: {name: sgd, lr: 1.0, momentum: 0.9}\nprecision: bf16\n",
    BASE + "task: {name: gpt, args: {layers: 1}}\noptimizer: {name: adamw, betas: [0.9, 0.95]}\n",
    BASE + MLP + "schedule: {name: one_cycle, peak: 0.4}\ninterventions: {clip_norm: 2}\n",
    BASE + MLP + "schedule: {warmup_steps: 5}\ndetectors: {loss_spike: {window: 20}}\n",
    BASE + MLP + "detectors: {loss_spike: {window: 30, threshold: 5}, non_finite: {}}\n",
    BASE + "train: {name: own.py:train, args: {lr: 0.1, deep: {er: 1}}}\nmonitors: {}\n",
    BASE + "train: {name: own.py:train, args: {}}\nsteps: 99\n",
]


def document(text):
    return parse_document(text)


@pytest.mark.parametrize("good", EXPERIMENTS)
@pytest.mark.parametrize("bad", EXPERIMENTS)
def test_with_every_setting_carried_over_the_good_run_is_the_bad_one(good, bad):
    a, b = (flat(from_document(document(text))) for text in (good, bad))
    settings = settings_of(a, b)
    made = flat(from_document(patched(document(good), patch_for(settings, a, b))))
    assert differing_keys(made, b) == ()
    assert patch_for((), a, b) == {}


@given(st.sampled_from(EXPERIMENTS[:3] + EXPERIMENTS[4:7]), st.data())
def test_with_some_carried_over_exactly_those_are_the_bad_ones(good, data):
    bad = data.draw(st.sampled_from(EXPERIMENTS[:3] + EXPERIMENTS[4:7]))
    a, b = (flat(from_document(document(text))) for text in (good, bad))
    settings = settings_of(a, b)
    chosen = [setting for setting in settings if data.draw(st.booleans(), label=setting.name)]
    made = flat(from_document(patched(document(good), patch_for(chosen, a, b))))
    taken = {key for setting in chosen for key in setting.keys}
    assert {d.key for d in differing_keys(made, b)} == {
        d.key for d in differing_keys(a, b) if d.key not in taken
    }


@pytest.mark.parametrize(
    ("good", "bad", "names"),
    [
        (0, 1, ("clip", "seed")),
        (0, 2, ("optimizer.lr", "optimizer.momentum", "precision", "task.args.width")),
        (2, 3, ("optimizer", "precision", "task")),
        (0, 4, ("schedule", "interventions.clip_norm")),
        (5, 6, ("schedule.warmup_steps", "detectors.loss_spike")),
        (0, 7, ("task", "steps")),
    ],
)
def test_likely_reasons_come_first_and_what_belongs_together_is_one(good, bad, names):
    a, b = (flat(from_document(document(EXPERIMENTS[i]))) for i in (good, bad))
    assert tuple(setting.name for setting in settings_of(a, b)) == names


def test_a_difference_names_both_values():
    a, b = (flat(from_document(document(EXPERIMENTS[i]))) for i in (0, 1))
    found = {d.key: (d.first, d.second) for d in differing_keys(a, b)}
    assert found == {"clip": (None, 1.0), "seed": (0, 4)}
