"""What a Lightning trainer itself remembers: its counters, and the state of callbacks and hooks.

Put back where it was taken, between two hooks of the same batch, so that no loop has to restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from stabexp.errors import CheckpointError
from stabexp.integrations.lightning_package import pl
from stabexp.integrations.lightning_quiet import LEFT_OUT, UNSAVED


class TrainerState:
    """The trainer's part of a snapshot."""

    def __init__(self, trainer: pl.Trainer) -> None:
        self._trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        """Return every counter, and what callbacks, data module and module want to keep."""
        trainer = self._trainer
        return {
            "counters": {name: each.state_dict() for name, each in _counters(trainer)},
            "batches_that_stepped": trainer.fit_loop.epoch_loop._batches_that_stepped,
            "means": _means(trainer),
            "callbacks": {
                callback.state_key: {
                    "own": callback.state_dict(),
                    "modules": _modules(callback),
                    "decides": not isinstance(callback, LEFT_OUT),
                }
                for callback in self._callbacks()
            },
            "data": self._data_module().state_dict() if self._data_module() else {},
            "module": self._kept_by_module(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` returned.

        Raises:
            CheckpointError: If a callback that had a state is not here.
        """
        trainer = self._trainer
        for name, each in _counters(trainer):
            each.load_state_dict(state["counters"][name])
        trainer.fit_loop.epoch_loop._batches_that_stepped = state["batches_that_stepped"]
        _go_on_with_means(trainer, dict(state["means"]))
        here = {callback.state_key: callback for callback in self._callbacks()}
        for key, saved in state["callbacks"].items():
            if key not in here and not saved["decides"]:
                continue
            if key not in here:
                raise CheckpointError(
                    f"trainer: callback {key} is in the checkpoint but not here; give the trainer "
                    "the same callbacks in every call"
                )
            if saved["own"]:
                here[key].load_state_dict(saved["own"])
            for name, weights in saved["modules"].items():
                getattr(here[key], name).load_state_dict(weights)
        if (data := self._data_module()) is not None:
            data.load_state_dict(state["data"])
        if state["module"]:
            module = trainer.lightning_module
            module.on_load_checkpoint({"state_dict": module.state_dict(), **state["module"]})

    def _callbacks(self) -> list[pl.Callback]:
        return [
            callback
            for callback in self._trainer.callbacks  # type: ignore[attr-defined]
            if not isinstance(callback, UNSAVED)
            and (_modules(callback) or _has_own("state_dict", callback))
        ]

    def _data_module(self) -> Any:
        data = self._trainer.datamodule  # type: ignore[attr-defined]
        return data if data is not None and _has_own("state_dict", data) else None

    def _kept_by_module(self) -> dict[str, Any]:
        module = self._trainer.lightning_module
        if not _has_own("on_save_checkpoint", module):
            return {}
        usual = {"state_dict": module.state_dict(), "epoch": 0, "global_step": 0}
        checkpoint: dict[str, Any] = dict(usual)
        module.on_save_checkpoint(checkpoint)
        return {key: value for key, value in checkpoint.items() if key not in usual}


def _counters(trainer: pl.Trainer) -> Iterator[tuple[str, Any]]:
    loop = trainer.fit_loop
    yield "epochs", loop.epoch_progress
    yield "batches", loop.epoch_loop.batch_progress
    yield "schedules", loop.epoch_loop.scheduler_progress
    yield "automatic", loop.epoch_loop.automatic_optimization.optim_progress
    yield "manual", loop.epoch_loop.manual_optimization.optim_step_progress
    yield "validation", loop.epoch_loop.val_loop.batch_progress


def _means(trainer: pl.Trainer) -> dict[str, Any]:
    """Return what was logged in this pass so far, to be averaged at its end, by Lightning's key.

    A schedule may follow such an average, and Lightning's own checkpoints forget it.
    """
    return {
        key: {"value": metric.value, "samples": getattr(metric, "cumulated_batch_size", None)}
        for key, metric in trainer.fit_loop.epoch_loop._results.items()
        if metric.is_tensor and metric.meta.on_epoch and not metric.has_reset
    }


def _go_on_with_means(trainer: pl.Trainer, means: dict[str, Any]) -> None:
    """Let the first value that is logged under a key be added to those before the fork."""
    if not means:
        return
    results = trainer.fit_loop.epoch_loop._results
    inner = results.update_metrics

    def update_metrics(key: str, value: Any, batch_size: int) -> None:
        if (before := means.pop(key, None)) is not None:
            results[key].value = before["value"]
            if before["samples"] is not None:
                results[key].cumulated_batch_size = before["samples"]
        if not means:
            vars(results).pop("update_metrics", None)
        inner(key, value, batch_size)

    results.update_metrics = update_metrics


def _has_own(hook: str, thing: Any) -> bool:
    return bool(pl.utilities.model_helpers.is_overridden(hook, thing))


def _modules(callback: pl.Callback) -> dict[str, Any]:
    """Return the weights that a callback holds, such as averages, by attribute."""
    return {
        name: value.state_dict()
        for name, value in vars(callback).items()
        if isinstance(value, nn.Module) and not isinstance(value, pl.LightningModule)
    }
