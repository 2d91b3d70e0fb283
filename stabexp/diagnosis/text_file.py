"""A log as text, one line at a time, however large, and a clear word when it is no text at all."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from stabexp.errors import ConfigError

HEAD = 4096
"""Bytes that tell text from something else."""
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def head_of(path: Path) -> bytes:
    """Return the file's first bytes.

    Raises:
        ConfigError: If it cannot be read or is empty.
    """
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    if not head.strip():
        raise ConfigError(f"{path}: is empty; was the run started, and this its log?")
    return head


def encoding_of(path: Path) -> str:
    """Return the text encoding of a file.

    Raises:
        ConfigError: If it is no text.
    """
    head = head_of(path)
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding
    if head.startswith(b"SQLite format 3\0"):
        raise ConfigError(
            f"{path}: is a database. If it is MLflow's: stabexp diagnose MLFLOW_RUN_ID "
            f"--tracking-uri sqlite:///{path}"
        )
    if b"\0" in head:
        raise ConfigError(
            f"{path}: is not a log that can be read (binary data); expected CSV, JSON lines, a "
            "trainer_state.json or TensorBoard events (a file name with 'tfevents')"
        )
    return "utf-8"


@contextmanager
def opened(path: Path) -> Iterator[TextIO]:
    """Open a log as text; bytes that are no text become "�".

    Raises:
        ConfigError: If it cannot be read, is empty, or is no text.
    """
    encoding = encoding_of(path)
    try:
        with path.open(encoding=encoding, errors="replace", newline="") as file:
            yield file
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
