"""A recorded run leaves Lightning's own logging and saving alone; a replay has none of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from integrations.lightning import worlds
from integrations.lightning.worlds import THIRD_PARTY, loader, trainer
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint, Timer
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from recording import record

from stabexp.bisection.replay import first_mismatch
from stabexp.integrations.lightning import StabexpCallback

pytestmark = [
    THIRD_PARTY,
    pytest.mark.filterwarnings(
        "ignore:Checkpoint directory .* exists.*",  # the test looks at it afterwards
        "ignore:.*smaller than the logging interval.*",
    ),
]


class Logs(worlds.Validated):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        self.log("train_loss", loss, prog_bar=True)
        self.logger.experiment.log_metrics({"by hand": 1.0})
        return loss

    def on_train_epoch_end(self) -> None:
        self.trainer.save_checkpoint("logs/by_hand.ckpt")


def train(run: Any) -> None:
    fit = trainer(
        StabexpCallback(run),
        ModelCheckpoint(dirpath="logs/saved", save_top_k=-1, every_n_train_steps=7),
        EarlyStopping("val_loss", patience=50),
        LearningRateMonitor(),
        Timer("00:01:00:00"),
        logger=CSVLogger("logs"),
        log_every_n_steps=1,
        enable_checkpointing=True,
        enable_progress_bar=True,
        enable_model_summary=True,
    )
    fit.fit(Logs(), loader())


def files() -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in Path("logs").rglob("*")}


def test_a_replay_writes_and_prints_nothing(tmp_path, capsys):
    recorded = record(train, tmp_path / "states")
    before, printed = files(), capsys.readouterr().out
    assert {path.name for path in before} >= {"metrics.csv", "by_hand.ckpt", "saved"}
    assert "val_loss" in Path("logs/lightning_logs/version_0/metrics.csv").read_text()
    assert "Epoch 2" in printed
    assert "Total params" in printed
    replayed = recorded.replay(16)
    assert first_mismatch(recorded.records, replayed) == (None, "")
    assert files() == before
    assert capsys.readouterr().out == ""


def test_a_replay_makes_no_logger(tmp_path):
    def log(run: Any) -> None:
        fit = trainer(StabexpCallback(run), max_epochs=1, logger=TensorBoardLogger("board"))
        fit.fit(worlds.Net(), loader())

    recorded = record(log, tmp_path / "states")
    assert [path.name for path in Path("board/lightning_logs").iterdir()] == ["version_0"]
    recorded.replay(3)
    assert [path.name for path in Path("board/lightning_logs").iterdir()] == ["version_0"]


def test_a_loader_with_a_generator_of_its_own_need_not_be_validated_on(tmp_path):
    """What validation draws then is nothing that the training would have drawn."""
    validated: list[bool] = []

    class Quiet(worlds.Net):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            validated.append(self.run.replaying)

        def val_dataloader(self) -> Any:
            return loader(worlds.table(24), shuffle=False, generator=torch.Generator())

    def validate(run: Any) -> None:
        module = Quiet()
        module.run = run
        fit = trainer(StabexpCallback(run), limit_val_batches=0 if run.replaying else 1.0)
        fit.fit(module, loader())

    recorded = record(validate, tmp_path / "states")
    assert len(validated) == 2 + 3 * 3  # two batches before the training, to see that it works
    replayed = recorded.replay(5)
    assert first_mismatch(recorded.records, replayed) == (None, "")
    assert not any(validated)


def test_what_comes_after_the_fit_still_works_in_a_replay(tmp_path):
    losses: list[float] = []

    def then_validate(run: Any) -> None:
        fit, module = trainer(StabexpCallback(run), max_epochs=1), worlds.Validated()
        fit.fit(module, loader())
        losses.append(fit.validate(module, verbose=False)[0]["val_loss"])

    record(then_validate, tmp_path / "states").replay(5)
    assert len(losses) == 2


def test_a_replay_that_ends_early_ends_in_the_middle_of_a_pass(tmp_path):
    recorded = record(train, tmp_path / "states")
    (tmp_path / "logs").rename(tmp_path / "of the run")
    part = recorded.replay(5)[:4]
    from recording import executed

    from stabexp.training import Fork

    fork = Fork(checkpoints=recorded.checkpoints, step=5, records=recorded.records[:5])
    records, run = executed(recorded.program, fork=fork, until=9)
    assert run.over
    assert [one.step for one in records] == [5, 6, 7, 8]
    assert [one.digest for one in records] == [one.digest for one in part]
    assert not Path("logs").exists()
