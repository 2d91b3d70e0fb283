"""A replay inside Lightning leaves no traces: it logs nothing, saves nothing and prints nothing.

Validation stays, because it decides: its loader draws from the random stream of the training, and
a schedule may follow its metrics. It goes once the replay is over.
"""

from __future__ import annotations

from typing import Any

from stabexp.integrations.lightning_package import pl

LEFT_OUT = (
    pl.callbacks.Checkpoint,
    pl.callbacks.DeviceStatsMonitor,
    pl.callbacks.EarlyStopping,
    pl.callbacks.LearningRateMonitor,
    pl.callbacks.ModelSummary,
    pl.callbacks.OnExceptionCheckpoint,
    pl.callbacks.ProgressBar,
    pl.callbacks.ThroughputMonitor,
    pl.callbacks.Timer,
)
"""Callbacks that show, save or end a training, and do not decide its next step."""

UNSAVED = tuple(kind for kind in LEFT_OUT if kind is not pl.callbacks.EarlyStopping)
"""Those whose memory is no part of a state: clocks and paths, which differ from run to run."""


def quieten(trainer: pl.Trainer) -> None:
    """Take away what a replay must not do. Call it before the trainer opens its loggers."""
    # Not none: a module may write to self.logger.experiment.
    trainer.loggers = [pl.loggers.logger.DummyLogger()] if trainer.loggers else []
    trainer.callbacks = [  # type: ignore[attr-defined]
        callback
        for callback in trainer.callbacks  # type: ignore[attr-defined]
        if not isinstance(callback, LEFT_OUT)
    ]
    trainer.num_sanity_val_steps = 0
    trainer.save_checkpoint = _saves_nothing  # type: ignore[method-assign]


def leave_out_the_end(trainer: pl.Trainer) -> None:
    """Do without the validation, and the schedules, that would follow the last step."""
    trainer.limit_val_batches = 0
    trainer.strategy.lr_scheduler_configs = []


def _saves_nothing(*_: Any, **__: Any) -> None:
    return None
