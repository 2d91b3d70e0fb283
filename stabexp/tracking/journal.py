"""An append-only file of JSON lines that survives the death of its writer.

Every line reaches the kernel in one write, so a killed process loses nothing it recorded and leaves
at most one torn line, at the end. Readers ignore that line; the next writer cuts it off. A line
that cannot be read anywhere else is damage, and is reported with its place.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from stabexp.errors import TrackingError


class Line(NamedTuple):
    """One line of a journal and the bytes it occupies."""

    value: dict[str, Any]
    start: int
    end: int


class Journal:
    """The writing end, for one writer at a time."""

    def __init__(self, path: Path) -> None:
        """Open or create the file, and cut off a torn last line.

        Raises:
            TrackingError: If it cannot be opened.
        """
        self.path = path
        self._torn = False
        try:
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            _repair(self._file)
        except OSError as error:
            raise _unwritable(path, error) from error

    def append(self, text: str) -> None:
        """Add one line of JSON, given without its line break.

        Raises:
            TrackingError: If it cannot be written; nothing of it is left in the file then.
        """
        data = text.encode() + b"\n"
        try:
            if self._torn:
                _repair(self._file)
                self._torn = False
            written = os.write(self._file, data)
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError as error:
            self._torn = True
            with suppress(OSError):
                _repair(self._file)
                self._torn = False
            raise _unwritable(self.path, error) from error

    def sync(self) -> None:
        """Return once what was appended is on the disk itself, so that it survives a power cut."""
        try:
            os.fsync(self._file)
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def close(self) -> None:
        """Sync and close; a second call does nothing."""
        if self._file >= 0:
            try:
                self.sync()
            finally:
                os.close(self._file)
                self._file = -1


def append_shared(path: Path, value: Mapping[str, Any], *, durable: bool = False) -> None:
    """Add one line to a journal that several processes may write to."""
    journal: Journal | None = None
    try:
        with open(path, "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            journal = Journal(path)
            journal.append(json.dumps(value, allow_nan=False))
            if durable:
                journal.sync()
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        if journal is not None:
            os.close(journal._file)


def read_lines(path: Path, start: int = 0) -> Iterator[Line]:
    """Yield the whole lines from byte `start` on; a missing file has none.

    Raises:
        TrackingError: If a line before the last one is not a JSON object.
    """
    try:
        with open(path, "rb") as file:
            file.seek(start)
            position = start
            for raw in file:
                if not raw.endswith(b"\n"):
                    return
                value = _parse(raw)
                if value is None:
                    if not file.read(1):
                        return
                    number = path.read_bytes()[:position].count(b"\n") + 1
                    raise TrackingError(
                        f"{path}:{number}: not a line of JSON: {raw[:40]!r}; the file was damaged "
                        "after it was written. Restore it, or delete this line"
                    )
                yield Line(value, position, position + len(raw))
                position += len(raw)
    except FileNotFoundError:
        return
    except OSError as error:
        raise TrackingError(f"{path}: cannot be read: {error.strerror}") from error


def _parse(raw: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(raw)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _repair(file: int) -> None:
    """Cut the file after its last whole line of JSON, when anything follows."""
    size = os.fstat(file).st_size
    block = 1 << 16
    while size:
        start = max(0, size - block)
        tail = os.pread(file, size - start, start)
        end = tail.rfind(b"\n") + 1
        begin = tail.rfind(b"\n", 0, end - 1) + 1 if end else 0
        if begin or not start:
            sound = start + (end if end and _parse(tail[begin:end]) is not None else begin)
            if sound < size:
                os.ftruncate(file, sound)
            return
        block *= 8


def _unwritable(path: Path, error: OSError) -> TrackingError:
    return TrackingError(
        f"{path}: cannot be written: {error.strerror or error}; what was recorded before is safe. "
        "Free space or fix the permissions there, then go on from the last checkpoint"
    )
