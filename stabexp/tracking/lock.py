"""At most one process works on a run; the others learn which one does."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stabexp.errors import BusyError, TrackingError


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file `path`, or the file "lock" in it when it is a directory.

    The kernel lets go when the process dies, so a lock is never left over.

    Raises:
        BusyError: If another process, or another block of this one, holds it.
        TrackingError: If the lock file cannot be opened.
    """
    file_path = path / "lock" if path.is_dir() else path
    try:
        file = os.open(file_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise TrackingError(f"{file_path}: cannot be opened: {error.strerror}") from error
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(file, 32, 0).decode(errors="replace").strip() or "unknown"
            raise BusyError(
                f"{file_path.parent}: process {holder} is working on it; wait for it, or stop it"
            ) from None
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(file)
