"""What of a Trainer is neither model, optimizer nor data, and what of it only shows.

Counters and callbacks with a state decide later steps (early stopping, an average of the weights);
trackers, progress bars and printers do not, and have no place in a replay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerCallback
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK
from transformers.trainer_callback import ExportableState

from stabexp.state.snapshot import Stateful

COUNTERS = (
    "epoch",
    "global_step",
    "num_input_tokens_seen",
    "total_flos",
    "best_metric",
    "best_global_step",
)
"""Fields of TrainerState that the run's course decides; its log is left out, it holds durations."""

REPORTING = (*INTEGRATION_TO_CALLBACK.values(), ProgressCallback, PrinterCallback)

REPORTING_NAMES = {
    "JITCheckpointCallback",
    "LogCompletionsCallback",
    "NotebookProgressCallback",
    "RichProgressCallback",
    "WeaveCallback",
}
"""Those of transformers and TRL whose import needs what may not be there."""


class Progress:
    """A Trainer's counters and the state of its callbacks, as one object with a state_dict."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        """Return the counters by name, and a state for each callback that has one."""
        state = self._trainer.state
        return {
            "counters": {name: _number(getattr(state, name)) for name in COUNTERS},
            "callbacks": {name: _state(each) for name, each in self._callbacks().items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` returned."""
        for name, value in state["counters"].items():
            setattr(self._trainer.state, name, value)
        for name, callback in self._callbacks().items():
            if name in state["callbacks"]:
                _set_state(callback, state["callbacks"][name])

    def _callbacks(self) -> dict[str, Any]:
        """Return the callbacks with a state, named after their class and counted within it."""
        found: dict[str, Any] = {}
        seen: Counter[str] = Counter()
        for callback in self._trainer.callback_handler.callbacks:
            name = type(callback).__name__
            if isinstance(callback, (Stateful, ExportableState)):
                found[f"{name}.{seen[name]}"] = callback
            seen[name] += 1
        return found


def reporting_callbacks(trainer: Trainer) -> list[TrainerCallback]:
    """Return the callbacks that only show how it goes, to people or to trackers."""
    return [
        callback
        for callback in trainer.callback_handler.callbacks
        if isinstance(callback, REPORTING) or type(callback).__name__ in REPORTING_NAMES
    ]


def _state(callback: Any) -> Any:
    if isinstance(callback, Stateful):
        return callback.state_dict()
    return callback.state().get("attributes", {})


def _set_state(callback: Any, state: Any) -> None:
    if isinstance(callback, Stateful):
        callback.load_state_dict(state)
        return
    for name, value in state.items():
        setattr(callback, name, value)


def _number(value: Any) -> Any:
    """Return NumPy's and torch's numbers as Python's."""
    return value.item() if hasattr(value, "item") else value
