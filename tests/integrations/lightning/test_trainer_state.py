"""What the trainer itself remembers is part of a state, and is put back."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from integrations.lightning import worlds
from integrations.lightning.worlds import THIRD_PARTY, loader, trainer
from lightning.pytorch.callbacks import (
    Callback,
    EarlyStopping,
    GradientAccumulationScheduler,
    WeightAveraging,
)
from recording import Recorded, executed, record

from stabexp.bisection.replay import first_mismatch
from stabexp.errors import CheckpointError
from stabexp.integrations.lightning import StabexpCallback
from stabexp.state import CheckpointStore
from stabexp.training import Fork

pytestmark = THIRD_PARTY


def resumed(recorded: Recorded, step: int, directory: Any) -> None:
    """Go on from a step as an interrupted run does: with logging, saving and the rest."""
    fork = Fork(checkpoints=recorded.checkpoints, step=step, records=recorded.records[:step])
    with CheckpointStore(directory, keep=1000) as store:
        records, _ = executed(recorded.program, fork=fork, checkpoints=store, keep_saving=True)
    assert first_mismatch(recorded.records, records) == (None, "")
    assert records[-1].step == recorded.records[-1].step


class Counters(Callback):
    """Writes down what a hook sees of the trainer's progress."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, ...]] = []

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        loop = trainer.fit_loop.epoch_loop
        self.seen.append(
            (
                trainer.current_epoch,
                trainer.global_step,
                batch_idx,
                loop.total_batch_idx,
                loop._batches_that_stepped,
                int(trainer.is_last_batch),
            )
        )


@pytest.mark.parametrize("module", [worlds.Validated, worlds.Manual])
@pytest.mark.parametrize("step", [0, 5, 12, 14])
def test_hooks_see_the_same_progress(module, step, tmp_path):
    counters: list[Counters] = []

    def train(run: Any) -> None:
        counters.append(Counters())
        trainer(counters[-1], StabexpCallback(run)).fit(module(), loader())

    recorded = record(train, tmp_path)
    recorded.replay(step)
    whole, part = (one.seen for one in counters)
    assert len(whole) == 39
    start = whole.index(part[0])
    assert len(part) >= 38 - start  # the last batch of three passes may come after the last update
    assert part == whole[start : start + len(part)]


def test_an_average_of_the_weights_goes_on(tmp_path):
    averages: list[Any] = []

    def train(run: Any) -> None:
        averaging = WeightAveraging()
        trainer(averaging, StabexpCallback(run)).fit(worlds.Validated(), loader())
        averages.append(averaging._average_model)

    recorded = record(train, tmp_path / "run")
    resumed(recorded, 20, tmp_path / "resumed")
    whole, part = (model.state_dict() for model in averages)
    assert whole.keys() == part.keys()
    assert all(torch.equal(whole[name], part[name]) for name in whole)


def test_patience_goes_on_where_it_was(tmp_path):
    def train(run: Any) -> None:
        stopping = EarlyStopping("val_loss", patience=2, min_delta=100.0)
        fit = trainer(stopping, StabexpCallback(run), max_epochs=8)
        fit.fit(worlds.Validated(), loader())

    recorded = record(train, tmp_path / "run")
    assert len(recorded.records) == 3 * 13  # the first validation, and two without patience
    resumed(recorded, 30, tmp_path / "resumed")


def test_accumulation_may_change_with_the_epoch(tmp_path):
    def train(run: Any) -> None:
        fit = trainer(StabexpCallback(run), GradientAccumulationScheduler({0: 1, 1: 3}))
        fit.fit(worlds.Net(), loader())

    recorded = record(train, tmp_path)
    assert [one.batch_size for one in recorded.records[11:15]] == [8, 4, 24, 24]
    for step in (5, 13, 15, 20):
        assert first_mismatch(recorded.records, recorded.replay(step)) == (None, "")


def test_a_sampler_is_told_the_epoch(tmp_path):
    class ByEpoch(torch.utils.data.Sampler[int]):
        epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __len__(self) -> int:
            return worlds.SAMPLES

        def __iter__(self) -> Any:
            generator = torch.Generator().manual_seed(self.epoch)
            return iter(torch.randperm(len(self), generator=generator).tolist())

    def train(run: Any) -> None:
        data = loader(shuffle=False, sampler=ByEpoch())
        trainer(StabexpCallback(run)).fit(worlds.Net(), data)

    recorded = record(train, tmp_path)
    assert recorded.records[0].sample_ids != recorded.records[13].sample_ids
    for step in (5, 13, 30):
        replayed = recorded.replay(step)
        assert first_mismatch(recorded.records, replayed) == (None, "")


def test_a_callback_that_is_missing_is_named(tmp_path):
    callbacks: list[Any] = [WeightAveraging()]

    def train(run: Any) -> None:
        trainer(StabexpCallback(run), *callbacks).fit(worlds.Net(), loader())

    recorded = record(train, tmp_path)
    callbacks.clear()
    with pytest.raises(CheckpointError, match="WeightAveraging is in the checkpoint but not here"):
        recorded.replay(5)


class Averages(Callback):
    """Keeps Lightning's average of what was logged in a pass."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self.seen.append(float(trainer.callback_metrics["train_loss"]))


class FollowsTraining(worlds.Net):
    """The rate follows the average training loss of a pass."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = self.kind(self.parameters(), lr=self.lr)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.5)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "monitor": "train_loss"},
        }


@pytest.mark.parametrize("step", [5, 13, 22])
def test_averages_over_a_pass_go_on(step, tmp_path):
    averages: list[Averages] = []

    def train(run: Any) -> None:
        averages.append(Averages())
        trainer(averages[-1], StabexpCallback(run)).fit(FollowsTraining(), loader())

    recorded = record(train, tmp_path)
    assert first_mismatch(recorded.records, recorded.replay(step)) == (None, "")
    whole, part = (one.seen for one in averages)
    assert part == whole[-len(part) :]


def test_losses_on_held_out_data_are_recorded(tmp_path):
    recorded = record(
        lambda run: trainer(StabexpCallback(run)).fit(worlds.Validated(), loader()), tmp_path
    )
    measured = {one.step: one.metrics for one in recorded.records if one.metrics}
    assert sorted(measured) == [13, 26]
    assert all(list(metrics) == ["val_loss"] for metrics in measured.values())
