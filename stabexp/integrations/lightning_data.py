"""Where a Lightning trainer is in its passes over the data, and how a fork gets there.

Lightning's own resume sets flags that make its loops leave out hooks and passes. Here an epoch
begins as every epoch does, and is only told at which batch it is. So hooks that come before the
first batch see the epoch they saw in the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stabexp.integrations.lightning_package import pl
from stabexp.training.loader_watch import LoaderWatch


class LightningData:
    """The position of a loader and of the trainer that iterates it."""

    numbers_batches = False

    def __init__(self, trainer: pl.Trainer, watch: LoaderWatch) -> None:
        self.dataset = watch.dataset
        self._trainer = trainer
        self._watch = watch
        self._saved: Mapping[str, Any] = {}

    def use(self) -> tuple[int, ...]:
        """Return the sample ids of the batch that is used now."""
        return self._watch.use()

    def state_dict(self) -> dict[str, Any]:
        """Return what the loader read and what the trainer counted, in the middle of a batch."""
        loop = self._trainer.fit_loop
        return {
            "loader": self._watch.state_dict(),
            "epochs": loop.epoch_progress.current.completed,
            "batches": loop.epoch_loop.batch_progress.current.completed,
            "all_batches": loop.epoch_loop.batch_progress.total.completed,
            "updates": loop.epoch_loop.global_step,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the loader begin where it was; `enter_pass` does the same to the trainer."""
        self._saved = state
        self._watch.load_state_dict(state["loader"])

    def enter_pass(self) -> None:
        """Let a fit that is about to begin its first epoch find itself in that of the fork."""
        saved, loop = self._saved, self._trainer.fit_loop
        epochs = loop.epoch_progress
        _set(epochs.current, saved["epochs"])
        _set(epochs.total, saved["epochs"])
        updates = loop.epoch_loop.automatic_optimization.optim_progress.optimizer.step.total
        updates.ready = updates.completed = saved["updates"]
        if saved["epochs"] == 0:
            # The iterator was made before the loader knew where to start. Of later passes Lightning
            # makes another, after the hooks that come before a pass.
            assert loop._data_fetcher is not None
            loop._data_fetcher.combined_loader.reset()
            iter(loop._data_fetcher)

    def enter_batch(self, fetcher: Any) -> None:
        """Let an epoch that has just begun find itself before the batch of the fork."""
        batches = self._trainer.fit_loop.epoch_loop.batch_progress
        _set(batches.current, self._saved["batches"])
        _set(batches.total, self._saved["all_batches"])
        fetcher.fetched += self._saved["batches"]


def _set(count: Any, value: int) -> None:
    count.ready = count.started = count.processed = count.completed = value
