"""What could not be replayed exactly is refused before the first step, with what to do."""

from __future__ import annotations

import pytest
from integrations.transformers.lines import Line, Noisy, line
from torch.utils.data import IterableDataset
from transformers import Trainer, TrainerCallback, TrainingArguments

from stabexp.errors import NotReplayableError
from stabexp.integrations.transformers import StabexpCallback

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


class Stream(IterableDataset):
    """Points that come one after the other."""

    def __iter__(self):
        return (Noisy()[index] for index in range(50))


def bare(*, callbacks=(), **others):
    given = {"max_steps": 4, "use_cpu": True, "report_to": [], "save_strategy": "no"}
    return Trainer(
        model=Line(),
        args=TrainingArguments("out", disable_tqdm=True, **(given | others)),
        train_dataset=Noisy(),
        callbacks=list(callbacks),
    )


def resumes(run):
    bare(callbacks=[StabexpCallback(run)]).train(resume_from_checkpoint="out/checkpoint-4")


def added_late(run):
    trainer = bare()
    trainer.add_callback(StabexpCallback(run))
    trainer.train()


def trains_twice(run):
    trainer = bare(callbacks=[StabexpCallback(run)])
    trainer.train()
    trainer.train()


def two_trainers(run):
    callback = StabexpCallback(run)
    bare(callbacks=[callback])
    bare(callbacks=[callback]).train()


def searches(run):
    trainer = bare(callbacks=[StabexpCallback(run)])
    trainer.train(trial={"learning_rate": 0.1})


def buffers_its_samples(run):
    trainer = bare(callbacks=[StabexpCallback(run)])
    trainer._buffered_inputs = None  # as TRL's GRPOTrainer has
    trainer.train()


@pytest.mark.parametrize(
    ("train", "message"),
    [
        pytest.param(
            resumes,
            r"resume_from_checkpoint='out/checkpoint-4': Trainer's own resuming is not exact",
            id="resumes by itself",
        ),
        pytest.param(
            added_late,
            r"pass it as Trainer\(callbacks=\[StabexpCallback\(run\)\]\), or call callback\.attach",
            id="callback added late",
        ),
        pytest.param(trains_twice, "was called twice; one run is one training", id="trains twice"),
        pytest.param(two_trainers, "belongs to another Trainer already", id="two trainers"),
        pytest.param(searches, "hyperparameter_search: one run is one training", id="searches"),
        pytest.param(buffers_its_samples, "samples are written by the model", id="GRPO"),
        pytest.param(
            lambda run: line(run, auto_find_batch_size=True),
            r"auto_find_batch_size: .*; set it to False",
            id="finds its batch size",
        ),
        pytest.param(
            lambda run: line(run, data=Stream()),
            "loader over Stream makes no batches by index",
            id="stream",
        ),
        pytest.param(
            lambda run: line(run, optim="lomo"),
            "optim: lomo changes the weights during the backward pass",
            id="updates in the backward pass",
        ),
    ],
)
def test_is_refused_with_the_place_and_the_remedy(record, train, message):
    with pytest.raises(NotReplayableError, match=message):
        record(train)


class EndsEarly(TrainerCallback):
    """Ends every epoch after three updates."""

    def on_step_end(self, args, state, control, **kwargs):
        control.should_epoch_stop = state.global_step % 3 == 0


def test_epochs_that_end_early_are_recorded_but_not_replayed(record):
    run = record(lambda run: line(run, callbacks=[EndsEarly()], num_train_epochs=4, max_steps=-1))
    assert len(run.records) == 12
    assert [r.digest for r in run.replay(0)] == [r.digest for r in run.records]
    with pytest.raises(NotReplayableError, match="end no epoch early"):
        run.replay(9)


def test_attach_makes_good_for_a_callback_that_was_added_late(record):
    def train(run):
        trainer = bare()
        callback = StabexpCallback(run)
        trainer.add_callback(callback)
        callback.attach(trainer)
        callback.attach(trainer)
        trainer.train()

    run = record(train)
    assert [r.digest for r in run.replay(3)] == [r.digest for r in run.records[3:]]


def test_a_trainer_beside_it_without_the_callback_is_left_alone(record):
    kept = []

    def train(run):
        kept.append(bare())
        kept[0].train()
        line(run, max_steps=4)

    run = record(train)
    assert type(kept[0]) is Trainer
    assert len(run.records) == 4
