"""A fork of a Hugging Face training is the run itself, bit for bit, from wherever it starts."""

from __future__ import annotations

from functools import partial

import pytest
from integrations.transformers.lines import line
from transformers import EarlyStoppingCallback, TrainerCallback

from stabexp.bisection.replay import first_mismatch
from stabexp.errors import NotReplayableError

# Warnings of libraries about themselves: deprecated names, and threads beside forked readers.
pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning"),
]

# 1,024 passages: 7 updates in a pass, the last of one micro-batch where others have two.
PASSES = {"per_device_train_batch_size": 80, "max_steps": 18}
FORKS = (0, 3, 6, 9, 15)
"""The start, twice in the first pass, in the second, in the third.

All of them for the first; for the others those that tell most: inside a pass, and over its end.
"""


@pytest.mark.parametrize(
    ("name", "others", "forks"),
    [
        pytest.param("trainer", {}, FORKS, id="Trainer"),
        pytest.param("adapters", {}, (0, 6), id="PEFT"),
        pytest.param("sft", {}, (3, 15), id="TRL", marks=pytest.mark.slow),
        pytest.param("trainer", {"dataloader_num_workers": 2}, (0, 6, 9), id="two readers"),
        pytest.param(
            "trainer", {"bf16": True, "optim": "adamw_torch"}, (3, 9), id="bfloat16 and AdamW"
        ),
        pytest.param(
            "trainer",
            {"accelerator_config": {"use_seedable_sampler": False}},
            (0, 9, 15),
            id="plain sampler",
        ),
        pytest.param(
            "trainer",
            {"train_sampling_strategy": "group_by_length"},
            (3, 6, 15),
            id="grouped by length",
        ),
        pytest.param(
            "trainer",
            {"max_steps": -1, "num_train_epochs": 2, "neftune_noise_alpha": 5},
            (6, 9),
            id="epochs, noise on the embeddings",
        ),
    ],
)
def test_every_record_of_a_fork_is_that_of_the_run(training, record, name, others, forks):
    run = record(training(name, **{**PASSES, **others}))
    assert len(run.records) in (14, 18)
    for step in forks:
        if step < len(run.records):
            until = min(step + 6, len(run.records))
            replayed = run.replay(step, until=until)
            assert first_mismatch(run.records, replayed) == (None, "")
            seen = [record.sample_ids for record in run.records[step:until]]
            assert [record.sample_ids for record in replayed] == seen


def assert_exact(run):
    for step in (0, 3, 9, 15):  # of which one in each pass
        assert first_mismatch(run.records, run.replay(step)) == (None, "")


def test_random_augmentation_in_the_training_process_is_drawn_again(record):
    assert_exact(record(line))


@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_random_augmentation_in_reader_processes_is_drawn_again(record):
    assert_exact(record(partial(line, dataloader_num_workers=2)))


@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_reader_processes_that_draw_and_live_on_are_refused(record):
    with pytest.raises(NotReplayableError, match=r"dataloader_persistent_workers.*set it to False"):
        record(partial(line, dataloader_num_workers=1, dataloader_persistent_workers=True))


def test_evaluations_draw_random_numbers_and_are_made_in_a_replay_too(record):
    evaluating = {"eval_strategy": "steps", "eval_steps": 2, "eval_on_start": True}
    assert_exact(record(partial(line, **evaluating)))


class Average(TrainerCallback):
    """Keeps an average of the weights, and pulls the weights towards it."""

    def __init__(self):
        self.kept = None

    def on_step_end(self, args, state, control, model, **kwargs):
        now = [p.detach() for p in model.parameters()]
        self.kept = self.kept or [p.clone() for p in now]
        for kept, p in zip(self.kept, now, strict=True):
            kept.lerp_(p, 0.1)
            p.lerp_(kept, 0.5)

    def state_dict(self):
        return {"kept": self.kept}

    def load_state_dict(self, state):
        self.kept = state["kept"]


def test_a_callback_with_a_state_goes_on_where_it_was(record):
    assert_exact(record(lambda run: line(run, callbacks=[Average()])))


def test_early_stopping_stops_a_replay_where_it_stopped_the_run(record):
    def train(run):
        line(
            run,
            callbacks=[EarlyStoppingCallback(2)],
            learning_rate=0.0,
            eval_strategy="steps",
            eval_steps=1,
            metric_for_best_model="loss",
            greater_is_better=True,
            max_steps=40,
        )

    run = record(train)
    assert len(run.records) < 30
    for step in range(0, len(run.records), 3):
        replayed = run.replay(step, until=40)
        assert [r.digest for r in replayed] == [r.digest for r in run.records[step:]]


def test_a_compiled_model_is_replayed_exactly(record):
    assert_exact(record(partial(line, torch_compile=True, torch_compile_backend="aot_eager")))


def test_a_schedule_that_follows_the_evaluations_is_followed(record):
    given = {"lr_scheduler_type": "reduce_lr_on_plateau", "lr_scheduler_kwargs": {"patience": 0}}
    run = record(partial(line, eval_strategy="steps", eval_steps=1, learning_rate=0.3, **given))
    assert len({r.lr for r in run.records}) > 2
    assert_exact(run)
