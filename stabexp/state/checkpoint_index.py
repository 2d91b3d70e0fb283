"""The index of a run's checkpoints only grows, so a kill can tear nothing but its last line.

Every line carries a check of its own; a torn or altered line counts as not written. What it names:
a checkpoint, a removal, or the steps to keep besides the last ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pydantic

from stabexp.records import CheckpointInfo, from_json, to_json
from stabexp.state.durable_file import TEMPORARY, sync_directory

INDEX = "checkpoints.jsonl"


class CheckpointIndex:
    """What a directory's checkpoints are, as its index file says; safe to use from two threads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / INDEX
        self._lock = threading.Lock()
        self._offset = 0
        self._infos: dict[str, CheckpointInfo] = {}  # by file, in the order written
        self._protected: set[int] = set()
        self._open = False

    def infos(self) -> list[CheckpointInfo]:
        """Return the checkpoints by step."""
        return sorted(self.in_order_written(), key=lambda info: info.step)

    def in_order_written(self) -> list[CheckpointInfo]:
        """Return the checkpoints, the last one written last."""
        with self._lock:
            self._read()
            return list(self._infos.values())

    def protected(self) -> set[int]:
        """Return the steps whose checkpoints are to be kept."""
        with self._lock:
            self._read()
            return set(self._protected)

    def open_for_writing(self) -> None:
        """Create the directory, and remove what a killed writer left half done; once."""
        if not self._open:
            self._directory.mkdir(parents=True, exist_ok=True)
            self.delete_unlisted()
            self._open = True

    def append(self, info: CheckpointInfo) -> None:
        """Enter a checkpoint whose file is on the disk; it replaces one of the same step."""
        self._append(to_json(info), durable=True)

    def append_removal(self, info: CheckpointInfo) -> None:
        """Enter that a checkpoint's file is about to go."""
        self._append({"removed": info.file}, durable=True)

    def append_protection(self, steps: Collection[int]) -> None:
        """Enter which steps' checkpoints are to be kept, in place of those entered before."""
        if set(steps) != self.protected():
            # Training waits for this one, so not for the disk: it survives a kill all the same.
            self._append({"protected": sorted(set(steps))}, durable=False)

    def delete_unlisted(self) -> None:
        """Delete checkpoint files, whole or half written, that the index does not name."""
        listed = {info.file for info in self.infos()}
        for pattern in ("step-*.pt", f"step-*.pt{TEMPORARY}"):
            for path in self._directory.glob(pattern):
                if path.name not in listed:
                    path.unlink(missing_ok=True)

    def _append(self, content: Mapping[str, Any], *, durable: bool) -> None:
        line = json.dumps({**content, "check": _check(content)}).encode() + b"\n"
        with self._lock:
            new = not self._path.exists()
            with self._path.open("a+b") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - 1))
                if size and file.read(1) != b"\n":
                    line = b"\n" + line  # ends the line a killed writer tore
                file.write(line)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            if new:
                sync_directory(self._directory)

    def _read(self) -> None:
        """Take in the lines added since the last time."""
        try:
            with self._path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._offset:
                    self._offset = 0
                    self._infos.clear()
                    self._protected.clear()
                file.seek(self._offset)
                text = file.read()
        except OSError:  # nothing was saved yet, or the directory is gone
            return
        complete = text.rfind(b"\n") + 1
        self._offset += complete
        for line in text[:complete].splitlines():
            self._take(_parse(line))

    def _take(self, content: Mapping[str, Any]) -> None:
        if "protected" in content:
            self._protected = set(content["protected"])
        elif "removed" in content:
            self._infos.pop(content["removed"], None)
        elif content:
            try:
                info = from_json(CheckpointInfo, content)
            except pydantic.ValidationError:
                return  # of another version
            older = [file for file, other in self._infos.items() if other.step == info.step]
            for file in older:
                del self._infos[file]
            self._infos[info.file] = info


def _parse(line: bytes) -> dict[str, Any]:
    """Return a line's content, empty when it is torn or altered."""
    try:
        content = json.loads(line)
    except ValueError:
        return {}
    if not isinstance(content, dict) or content.pop("check", None) != _check(content):
        return {}
    return content


def _check(content: Mapping[str, Any]) -> str:
    text = json.dumps(dict(content), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
