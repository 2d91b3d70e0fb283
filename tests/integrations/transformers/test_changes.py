"""Each change a replay can make acts inside Trainer as it says, and nothing else changes."""

from __future__ import annotations

from functools import partial

import pytest
from integrations.transformers.lines import Counting, line

from stabexp.bisection.replay import first_mismatch

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

GIVEN = {
    "max_steps": 12,
    "optim": "adamw_torch",
    "weight_decay": 0.1,
    "warmup_steps": 4,
    "lr_scheduler_type": "cosine",
    "learning_rate": 0.01,
    "bf16": True,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory, record_in):
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return record_in(folder / "checkpoints", partial(line, **GIVEN))


@pytest.mark.parametrize(
    "change",
    [
        {"learning_rate": 1.0},
        {"clip_norm": 1e9},
        {"batch_size": 1},
        {"weight_decay": 1.0},
        {"gradient_scale": 1.0},
        {"loss_clamp": 1e9},
        {"shuffle": 0},
        {"precision": "bf16"},
        {"adam_eps": 1e-8},
        {"betas": "0.9,0.999"},
        {"skip_updates": "500"},
        {"replace_samples": "999"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_change_of_nothing_is_the_control(run, change):
    assert first_mismatch(run.records, run.replay(3, changes=change)) == (None, "")


def test_half_the_rate_moves_the_weights_half_as_far(run):
    (one,) = run.replay(3, until=4, changes={"learning_rate": 0.5})
    was = run.records[3]
    assert (one.loss, one.grad_norm, one.sample_ids) == (was.loss, was.grad_norm, was.sample_ids)
    assert one.lr == was.lr / 2
    assert one.update_ratio == pytest.approx(was.update_ratio / 2, rel=1e-3)


def test_the_schedule_goes_on_beside_a_changed_rate(run):
    changed = run.replay(3, changes={"learning_rate": 0.5})
    assert [r.lr for r in changed] == [r.lr / 2 for r in run.records[3:]]


def test_a_smaller_limit_replaces_trainers_own(run):
    for record in run.replay(3, changes={"clip_norm": 0.01}):
        assert record.clip_coefficient == pytest.approx(0.01 / record.grad_norm, rel=1e-4)


def test_a_limit_is_set_where_trainer_clips_nothing(record):
    free = record(partial(line, **GIVEN, max_grad_norm=0.0))
    for one in free.replay(3, changes={"clip_norm": 0.01}):
        assert one.clip_coefficient == pytest.approx(0.01 / one.grad_norm, rel=1e-4)


def test_a_replaced_sample_is_not_seen_and_all_others_are(run):
    victim = run.records[4].sample_ids[1]
    changed = run.replay(3, changes={"replace_samples": str(victim)})
    before = [i for r in run.records[3:] for i in r.sample_ids]
    after = [i for r in changed for i in r.sample_ids]
    assert after == [(victim + 1) % 50 if i == victim else i for i in before]
    assert changed[1].digest != run.records[4].digest


def test_another_order_has_the_same_samples(run):
    changed = run.replay(0, until=7, changes={"shuffle": 1})
    ids = [i for r in changed for i in r.sample_ids]
    assert ids != [i for r in run.records[:7] for i in r.sample_ids]
    assert sorted(ids) == list(range(50))


def test_twice_the_batch_has_the_samples_of_two_updates(run):
    changed = run.replay(0, until=6, changes={"batch_size": 2})
    assert [r.batch_size for r in changed[:3]] == [16, 16, 16]
    assert set(changed[0].sample_ids) == {
        i for record in run.records[:2] for i in record.sample_ids
    }
    assert len(changed) == 6


def test_full_precision_takes_trainers_autocast_away(run, record):
    changed = run.replay(0, until=3, changes={"precision": "fp32"})
    exact = record(partial(line, **{**GIVEN, "bf16": False}))
    assert [r.loss for r in changed] == [r.loss for r in exact.records[:3]]
    assert changed[0].loss != run.records[0].loss


def test_a_skipped_update_leaves_weights_and_moments_alone(run):
    changed = run.replay(3, changes={"skip_updates": "5"})
    assert changed[2].skipped
    assert changed[2].update_ratio == 0.0
    assert changed[2].param_norm == changed[1].param_norm
    assert [r.lr for r in changed] == [r.lr for r in run.records[3:]]


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_a_clamp_acts_on_a_loss_that_the_model_divides(record, parts):
    counting = partial(line, max_steps=6, model=Counting, gradient_accumulation_steps=parts)
    run = record(counting)
    middle = sorted(r.loss for r in run.records)[2]
    clamped = run.replay(0, changes={"loss_clamp": middle})
    assert clamped[0].loss == run.records[0].loss
    assert any(r.grad_norm == 0.0 for r in clamped) or parts > 1
    assert any(a.grad_norm < b.grad_norm for a, b in zip(clamped, run.records, strict=True))
    assert first_mismatch(run.records, run.replay(0, changes={"loss_clamp": 1e9})) == (None, "")
