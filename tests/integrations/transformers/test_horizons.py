"""A replay may begin where an epoch ended, and may take more steps than the training has."""

from __future__ import annotations

from functools import partial

import pytest
from integrations.transformers.lines import line

from stabexp.interventions import build
from stabexp.state import CheckpointStore
from stabexp.training import Fork, Program, Run, execute

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def test_a_state_saved_as_an_epoch_ends_belongs_to_the_next_one(record, tmp_path):
    run = record(partial(line, max_steps=21))
    # A pass has 7 updates. The replay ends with the first pass, so its last state is saved where
    # no other has been drawn yet. The run's own states are saved later, and are exact.
    store = CheckpointStore(tmp_path / "own", keep=9)
    run.replay(3, until=7, checkpoints=store, save_at=(7,))
    store.close()
    assert [info.step for info in store.infos()] == [7]
    records = []
    go_on = Run(
        run.settings,
        fork=Fork(checkpoints=store.directory, step=7, records=run.records[:7]),
        until=21,
        on_step=records.append,
    )
    execute(Program(settings=run.settings, train=run.train), go_on)
    assert [r.step for r in records] == list(range(7, 21))
    for one_pass in (records[:7], records[7:]):
        assert sorted(i for r in one_pass for i in r.sample_ids) == list(range(50))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_scan_shows_every_batch_once_and_longer_than_the_training_goes(record, workers):
    # Two micro-batches an update: every sample is shown twice in one.
    run = record(partial(line, max_steps=9, dataloader_num_workers=workers))
    batches = ",".join(str(sample) for sample in range(20) for _ in range(2))
    records = []
    scan = Run(
        run.settings,
        fork=Fork(checkpoints=run.checkpoints, step=6, records=run.records[:6]),
        until=26,
        on_step=records.append,
        interventions=build({"frozen_scan": batches}),
        judged=False,
    )
    execute(Program(settings=run.settings, train=run.train), scan)
    assert [r.sample_ids for r in records] == [(sample, sample) for sample in range(20)]
    assert all(r.skipped for r in records)
    assert len({r.param_norm for r in records}) == 1


def test_a_larger_batch_makes_as_many_steps_as_asked(record):
    run = record(partial(line, max_steps=9))
    replayed = run.replay(3, until=9, changes={"batch_size": 4})
    assert [r.step for r in replayed] == list(range(3, 9))
