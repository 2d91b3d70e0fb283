"""When a run ends, what it saves, and what a fork takes over from the run before it."""

from __future__ import annotations

import time

import pytest
import torch

from stabexp.detectors.good import MARGIN
from stabexp.errors import CheckpointError, TrackingError
from stabexp.state import CheckpointStore
from stabexp.tasks import load_task
from stabexp.training import Fork, Program, RunSettings

TASK = load_task("mlp", {"width": 8, "depth": 1})
SPIKE = {"loss_spike": {"window": 20, "patience": 2}}
JUMP = 30
"""Step from which the loss is a hundred times too high."""


def jumping(run):
    model = TASK.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in run.steps(TASK.dataset(), model=model, optimizer=optimizer):
        loss = TASK.loss(model, batch)
        run.log(loss * (100 if run.step >= JUMP else 1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def jumping_program(**settings):
    given = {"name": "jump", "steps": 50, "checkpoint_every": 10, "detectors": SPIKE, **settings}
    return Program(settings=RunSettings(**given), train=jumping)


@pytest.fixture
def diverged(train, tmp_path):
    findings = []
    with CheckpointStore(tmp_path / "checkpoints", keep=10) as store:
        records, run = train(
            jumping_program(),
            keep_saving=True,
            checkpoints=store,
            on_divergence=lambda found, history: findings.append((found, history)),
        )
    return records, run, store, findings


def test_a_divergence_ends_the_loop_and_is_told_once_with_the_last_records(diverged):
    records, run, _, findings = diverged
    assert run.divergence is not None
    assert run.divergence.onset == JUMP
    assert run.divergence.detected == records[-1].step < 40
    ((found, history),) = findings
    assert found == run.divergence
    assert list(history)[-5:] == records[-5:]
    assert len(history) == len(records)


def test_saves_at_the_interval_and_at_the_divergence(diverged):
    records, _, store, _ = diverged
    assert [info.step for info in store.infos()] == [0, 10, 20, 30, records[-1].step + 1]


def test_a_fork_inherits_the_records_before_it_or_a_window_sees_nothing(diverged, train):
    records, run, store, _ = diverged
    for history in (records[:30], ()):
        fork = Fork(checkpoints=store.directory, step=30, records=history)
        again, replay = train(jumping_program(), fork=fork)
        assert [r.digest for r in again[:2]] == [r.digest for r in records[30:32]]
        if history:
            assert replay.divergence == run.divergence
        else:
            assert replay.divergence is None


def test_a_trial_saves_before_chosen_steps_only_and_ends_where_it_is_told(
    train, tmp_path, diverged
):
    _, _, origin, _ = diverged
    with CheckpointStore(tmp_path / "trial") as store:
        records, run = train(
            jumping_program(),
            fork=Fork(checkpoints=origin.directory, step=10),
            checkpoints=store,
            save_at=(17, 22),
            until=22,
        )
    assert [info.step for info in store.infos()] == [17, 22]
    assert [record.step for record in records] == list(range(10, 22))
    assert run.step == 22
    again, _ = train(jumping_program(), fork=Fork(checkpoints=store.directory, step=17), until=22)
    assert [r.digest for r in again] == [r.digest for r in records if r.step >= 17]


class UnevenDisk(CheckpointStore):
    """Every other write outlives the next step, the others are done at once."""

    def save(self, step, snapshot, *, finite):
        super().save(step, snapshot, finite=finite)
        if step % 2 == 0:
            self.flush()

    def _write(self, step, *arguments):
        time.sleep(0.02 * (step % 2))
        super()._write(step, *arguments)


@pytest.mark.parametrize("disk", [CheckpointStore, UnevenDisk])
@pytest.mark.parametrize("keep", [1, 3])
@pytest.mark.parametrize("every", [1, 2, 5, 6])
def test_a_healthy_run_ends_after_its_last_step_and_keeps_the_last_good_state(
    train, tmp_path, keep, every, disk
):
    made = jumping_program(steps=JUMP, checkpoint_every=every, detectors={})
    with disk(tmp_path / "checkpoints", keep=keep) as store:
        records, run = train(made, keep_saving=True, checkpoints=store)
    assert len(records) == JUMP
    assert run.divergence is None
    steps = [info.step for info in store.infos()]
    assert steps[0] == 0
    assert steps[-1] == JUMP
    # One is as far back as two intervals and what a sudden onset needs, and hardly further.
    distant = [step for step in steps if 0 < step <= JUMP - 2 * every - 3]
    assert distant
    assert JUMP - 4 * every - 3 <= distant[-1]
    young = range(JUMP - JUMP % every, JUMP - 2 * every - MARGIN, -every)
    assert set(young) <= set(steps)
    assert len(steps) <= 12


def test_a_disk_that_takes_no_checkpoints_does_not_end_the_training(train, tmp_path):
    (tmp_path / "file").write_text("not a directory")
    problems = []
    store = CheckpointStore(tmp_path / "file" / "checkpoints", on_error=problems.append)
    records, _ = train(jumping_program(steps=25), keep_saving=True, checkpoints=store)
    store.close()
    assert len(records) == 25
    assert problems
    assert isinstance(problems[0], CheckpointError)
    with pytest.raises(TrackingError):
        train(jumping_program(), on_divergence=lambda *_: _fail())


def _fail():
    raise TrackingError("disk full")


def test_a_fork_of_another_model_is_refused_before_a_step_is_made(train, diverged):
    _, _, store, _ = diverged
    other = load_task("mlp", {"width": 9, "depth": 1})

    def loop(run):
        model = other.model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in run.steps(TASK.dataset(), model=model, optimizer=optimizer):
            pytest.fail("a batch was given out")

    made = Program(settings=RunSettings(name="other"), train=loop)
    with pytest.raises(CheckpointError, match="shape"):
        train(made, fork=Fork(checkpoints=store.directory, step=10))


def test_a_long_runs_history_keeps_its_first_record_and_the_latest(train):
    histories = []

    def loop(run):
        jumping(run)

    settings = RunSettings(name="long", steps=900, batch_size=1, detectors=SPIKE)
    made = Program(settings=settings, train=loop)
    import sys

    module = sys.modules[__name__]
    old, module.JUMP = module.JUMP, 450
    try:
        _, run = train(made, on_divergence=lambda found, history: histories.append(history))
    finally:
        module.JUMP = old
    assert run.divergence is not None
    (history,) = histories
    steps = [record.step for record in history]
    assert steps[0] == 0
    assert steps[1:] == list(range(steps[1], run.step))
    assert 100 <= len(steps) <= 2 * 100 + 1
