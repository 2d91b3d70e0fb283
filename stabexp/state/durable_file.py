"""A file that has its name is complete and on the disk, whatever ends the process or the power.

It is written under a temporary name, synced, renamed, and its directory synced.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import IO, Any, cast

import torch

TEMPORARY = ".tmp"
"""What follows the name of a file that is still being written."""


def write_durably(path: Path, content: Any) -> tuple[str, int]:
    """Save with torch under a temporary name, sync, rename; return SHA-256 and size in bytes.

    Raises:
        OSError: If it could not be written; nothing is left of it then.
    """
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        with temporary.open("wb") as file:
            hashing = _HashingFile(file)
            torch.save(content, cast(IO[bytes], hashing))
            if hashing.error is not None:
                raise hashing.error
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)
    return hashing.digest.hexdigest(), hashing.size


def sync_directory(directory: Path) -> None:
    """Make new and renamed files in a directory last through a power failure."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _HashingFile:
    """A file to write to that knows its checksum; keeps the first error for the end.

    torch's zip writer aborts untidily when a write fails, so it is let to finish.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.size = 0
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        if self.error is None:
            try:
                self._file.write(data)
            except OSError as error:
                self.error = error
        self.digest.update(data)
        self.size += size
        return size

    def flush(self) -> None:
        """Do nothing: the file is synced once, at the end."""
