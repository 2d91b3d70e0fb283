"""A recorded run leaves saving, reports and callbacks as they are; a replay leaves no trace."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from integrations.transformers.lines import line
from transformers import ProgressCallback, TrainerCallback
from transformers.integrations import TensorBoardCallback

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard"),
]

GIVEN = {
    "max_steps": 9,
    "save_strategy": "steps",
    "save_steps": 4,
    "eval_strategy": "steps",
    "eval_steps": 4,
    "logging_steps": 1,
    "report_to": ["tensorboard"],
    "disable_tqdm": False,
}


class Told(TrainerCallback):
    """Remembers what the user's own callback is told."""

    def __init__(self):
        self.events = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.events.append("log")

    def on_save(self, args, state, control, **kwargs):
        self.events.append("save")

    def on_evaluate(self, args, state, control, **kwargs):
        self.events.append("evaluate")

    def on_step_end(self, args, state, control, **kwargs):
        self.events.append("step")


def everything(folder):
    return {file: file.stat().st_mtime_ns for file in Path(folder).rglob("*")}


def test_a_replay_writes_and_prints_nothing_and_shows_no_progress(record, capsys, monkeypatch):
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", "board")
    kept = []

    def train(run):
        told = Told()
        made = line(run, callbacks=[told], **GIVEN)
        made.save_model("model")
        made.save_state()
        made.save_metrics("train", {"train_loss": 1.0})
        made.log_metrics("train", {"train_loss": 1.0})
        kept.append((made, told))

    run = record(train)
    made, told = kept.pop()
    assert told.events.count("save") == 3
    assert told.events.count("evaluate") == 3
    assert told.events.count("log") > 9
    assert {str(file) for file in Path("out").glob("checkpoint-*")} == {
        "out/checkpoint-4",
        "out/checkpoint-8",
        "out/checkpoint-9",
    }
    before = {name: everything(name) for name in ("out", "board", "model")}
    assert all(before.values())
    capsys.readouterr()
    for step in (0, 6):
        replayed = run.replay(step)
        made, told = kept.pop()
        assert [r.digest for r in replayed] == [r.digest for r in run.records[step:]]
        assert set(told.events) == {"step", "evaluate"}
        shown = (ProgressCallback, TensorBoardCallback)
        assert not any(isinstance(each, shown) for each in made.callback_handler.callbacks)
    assert {name: everything(name) for name in before} == before
    out, errors = capsys.readouterr()
    assert out == ""
    assert "loss" not in errors


def test_a_run_that_diverges_stops_trainer_and_the_function_goes_on(record):
    after = []

    def train(run):
        made = line(run, learning_rate=1e9, optim="sgd", max_grad_norm=0.0, max_steps=50)
        after.append(made.state.global_step)

    run = record(train)
    assert run.divergence is not None
    assert after == [len(run.records)]
    assert len(run.records) < 50


def test_a_trial_ends_at_its_last_step(record):
    kept = []
    run = record(lambda run: kept.append(line(run, max_steps=12)))
    replayed = run.replay(3, until=5)
    assert [r.step for r in replayed] == [3, 4]
    assert kept[-1].state.global_step == 5


def test_a_resumed_run_saves_and_logs_on(record, tmp_path):
    from stabexp.state import CheckpointStore
    from stabexp.training import Fork, Program, Run, execute

    kept = []

    def train(run):
        kept.append(line(run, max_steps=9, save_strategy="steps", save_steps=3, logging_steps=1))

    run = record(train)
    whole = kept.pop()
    store = CheckpointStore(tmp_path / "more", keep=99)
    records = []
    again = Run(
        run.settings,
        fork=Fork(checkpoints=run.checkpoints, step=6, records=run.records[:6]),
        keep_saving=True,
        checkpoints=store,
        on_step=records.append,
    )
    execute(Program(settings=run.settings, train=train), again)
    store.close()
    assert [r.digest for r in records] == [r.digest for r in run.records[6:]]
    (resumed,) = kept
    assert resumed.state.log_history[0]["step"] == 7
    assert resumed.state.epoch == whole.state.epoch
    assert resumed.state.total_flos == whole.state.total_flos
    saved = Path("out/checkpoint-9/trainer_state.json")
    assert saved.exists()
    assert '"global_step": 9' in saved.read_text()


def test_nothing_of_ours_stays_in_torch_or_the_optimizer(record):
    from torch.nn.utils import clip_grad

    before = clip_grad._clip_grads_with_norm_
    kept = []
    run = record(lambda run: kept.append(line(run, max_steps=4)))
    partial(run.replay, 3)()
    assert clip_grad._clip_grads_with_norm_ is before
    for made in kept:
        optimizer = made.optimizer.optimizer
        assert not optimizer._optimizer_step_pre_hooks
        assert not optimizer._optimizer_step_post_hooks
