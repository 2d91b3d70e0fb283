"""The Hugging Face Trainer's trainer_state.json, also one that was cut off while it was written.

Its `loss` is the mean over the steps since the entry before, so nothing in it is known to the step.
The last entry sums the training up: its `train_loss` is the mean of all steps, and no point.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stabexp.diagnosis.json_lines import flat
from stabexp.diagnosis.log import Keep, Log, Rows
from stabexp.errors import ConfigError

FILE = "trainer_state.json"


def read_trainer_state(text: str, path: Path, keep: Keep) -> Log:
    """Return the curves of a trainer_state.json, also of one that was cut off while written.

    Raises:
        ConfigError: If it has no training entries.
    """
    state, warnings = _state(text)
    history = state.get("log_history")
    entries = [flat(e) for e in history if isinstance(e, dict)] if isinstance(history, list) else []
    training = [entry for entry in entries if "train_runtime" not in entry]
    if not any("loss" in entry for entry in training):
        raise ConfigError(
            f"{path}: its log_history has {len(entries)} entries and none with a training loss; "
            "set logging_steps lower, and logging_strategy to 'steps'"
        )
    rows = Rows(keep, place="entry")
    for index, entry in enumerate(training):
        rows.add(index, entry)
    series, others, odd = rows.result()
    return Log(
        format="Hugging Face trainer state",
        series=series,
        others=others,
        warnings=[*warnings, *odd, *_cut_at_checkpoint(path, state)],
        averaged=True,
    )


def _state(text: str) -> tuple[dict[str, Any], list[str]]:
    """Return the state, of a file that was cut off the entries that are whole."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        entries = _whole_entries(text)
        note = f"the file ends in the middle; {len(entries)} entries before that could be read"
        return {"log_history": entries}, [note]
    return (value if isinstance(value, dict) else {}), []


def _whole_entries(text: str) -> list[Any]:
    start = text.find("[", max(0, text.find('"log_history"')))
    decoder = json.JSONDecoder()
    entries: list[Any] = []
    while start >= 0:
        start = text.find("{", start)
        if start < 0:
            break
        try:
            entry, start = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            break
        entries.append(entry)
    return entries


def _cut_at_checkpoint(path: Path, state: Mapping[str, Any]) -> list[str]:
    if not path.parent.name.startswith("checkpoint-"):
        return []
    return [
        f"this is the log up to the checkpoint of step {state.get('global_step', '?')}; what came "
        "after it is not in it (trainer.save_state() writes all of it)"
    ]
