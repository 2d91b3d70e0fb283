"""Which kind of log a file or folder is, told by its content rather than by its name.

A folder is searched for what trainers leave in it. Where it holds the logs of several runs, none is
picked: the message lists them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stabexp.diagnosis.csv_log import read_csv
from stabexp.diagnosis.json_lines import log_of_json, parsed, read_json_lines
from stabexp.diagnosis.log import Keep, Log
from stabexp.diagnosis.tensorboard_events import NAME, read_events
from stabexp.diagnosis.text_file import head_of, opened
from stabexp.diagnosis.trainer_state import FILE, read_trainer_state
from stabexp.errors import ConfigError

LARGEST_JSON = 1 << 30
"""Bytes of a file that must be read whole."""
DEEPEST = 4
"""Levels of folders that are searched."""
SHOWN = 6


def read_log(path: Path, keep: Keep) -> Log:
    """Return what a file or folder holds.

    Raises:
        ConfigError: If it holds no log, or several.
    """
    if path.is_dir():
        return _read_folder(path, keep)
    if NAME in path.name:
        head_of(path)
        return read_events([("", path)], keep)
    head = head_of(path).lstrip(b"\xef\xbb\xbf \t\r\n")
    if head[:1] == b"[":
        return log_of_json(parsed(_whole(path)), path, keep)
    if head[:1] == b"{" or (head[:2] == b"\xff\xfe" and head[2:3] == b"{"):
        return _read_objects(path, keep)
    return read_csv(path, keep)


def _read_objects(path: Path, keep: Keep) -> Log:
    """Read a file that begins with an object: one a line, or one in all."""
    with opened(path) as file:
        first = file.readline(LARGEST_JSON)
        more = file.readline(1)
    if isinstance(parsed(first), dict) and (more or "log_history" not in first):
        whole = parsed(first)
        if more or not any(isinstance(cell, (list, dict)) for cell in whole.values()):
            return read_json_lines(path, keep)
    text = _whole(path)
    if '"log_history"' in text:
        return read_trainer_state(text, path, keep)
    value = parsed(text)
    return read_json_lines(path, keep) if value is None else log_of_json(value, path, keep)


def _whole(path: Path) -> str:
    if path.stat().st_size > LARGEST_JSON:
        raise ConfigError(
            f"{path}: a JSON file of {path.stat().st_size >> 20} MiB must be read whole; convert "
            "it to one object a line"
        )
    with opened(path) as file:
        return file.read()


def _read_folder(folder: Path, keep: Keep) -> Log:
    state = _trainer_state(folder)
    if state is not None:
        return read_log(state, keep)
    events = sorted(file for file in folder.glob(f"*{NAME}*") if file.is_file())
    if events:
        return read_events([("", file) for file in events] + _beside(folder), keep)
    if (folder / "metrics.csv").is_file():
        return read_csv(folder / "metrics.csv", keep)
    found = _below(folder)
    if len(found) == 1:
        return read_log(found[0], keep)
    if not found:
        raise ConfigError(
            f"{folder}: no log in it; looked for {FILE}, metrics.csv (Lightning), TensorBoard "
            "event files, *.jsonl and *.csv"
        )
    names = ", ".join(str(path.relative_to(folder)) for path in found[:SHOWN])
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    raise ConfigError(f"{folder}: holds {len(found)} logs; name one of them: {names}{more}")


def _trainer_state(folder: Path) -> Path | None:
    """Return the state in a Trainer's output folder, else that of its newest checkpoint."""
    if (folder / FILE).is_file():
        return folder / FILE
    checkpoints = [
        (int(number), path)
        for path in folder.glob(f"checkpoint-*/{FILE}")
        if (number := path.parent.name.rpartition("-")[2]).isdecimal()
    ]
    return max(checkpoints)[1] if checkpoints else None


def _beside(folder: Path) -> list[tuple[str, Path]]:
    """Return the event files of sub-folders: `SummaryWriter.add_scalars` makes one for a curve."""
    files = sorted(file for file in folder.glob(f"*/*{NAME}*") if file.is_file())
    return [(file.parent.name, file) for file in files]


def _below(folder: Path) -> Sequence[Path]:
    """Return the logs below a folder; the event files of one folder are one log."""
    files: list[Path] = []
    folders: list[Path] = []
    for depth in range(1, DEEPEST + 1):
        level = "*/" * (depth - 1)
        files += folder.glob(f"{level}*.jsonl")
        files += folder.glob(f"{level}*.csv")
        folders += {file.parent for file in folder.glob(f"{level}*{NAME}*")}
        folders += {file.parent for file in folder.glob(f"{level}{FILE}")}
    inner = [path for path in folders if not any(path != o and o in path.parents for o in folders)]
    return sorted({*files, *inner})
