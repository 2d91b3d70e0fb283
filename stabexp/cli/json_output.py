"""One JSON document on stdout, and nothing else there.

The document is strict JSON (RFC 8259): NaN and infinities are the strings "nan", "inf" and "-inf",
as in the recorded files. While a command makes it, whatever else is printed, by a training function
or a process it starts, goes to stderr.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any, TextIO

_documents: list[object] | None = None
"""What `print_json` was given, while a command runs for a program; None otherwise."""

_kept: list[int] = []
"""The descriptor of the real stdout, while descriptor 1 stands for stderr."""

_SENT = object()
"""Stands for a document that is out already."""


def print_json(data: object) -> None:
    """Print a value as one JSON document, at the end of the command where a program asked."""
    if _documents is None:
        _write(data, sys.stdout)
    else:
        _documents.append(data)


def print_json_now(data: object) -> None:
    """Print a value as the command's document at once, by a command that then goes on for long."""
    if _documents is None or not _kept:
        _write(data, sys.stdout)
        return
    with os.fdopen(os.dup(_kept[0]), "w", encoding="utf-8") as stream:
        _write(data, stream)
    _documents.append(_SENT)


def was_printed() -> bool:
    """Return whether the running command has its document already."""
    return bool(_documents)


@contextmanager
def only_json() -> Iterator[None]:
    """Send what is printed inside to stderr, and afterwards the document to stdout."""
    global _documents
    out, _documents = sys.stdout, []
    sys.stdout.flush()
    try:
        with _descriptor_too(), redirect_stdout(sys.stderr):
            yield
    finally:
        made, _documents = _documents, None
        for data in made[:1]:
            if data is not _SENT:
                _write(data, out)


def error_document(error: BaseException, message: str, exit_code: int) -> dict[str, Any]:
    """Return what stands on stdout instead of an answer."""
    return {
        "error": {"type": type(error).__name__, "message": message, "exit_code": exit_code},
    }


@contextmanager
def _descriptor_too() -> Iterator[None]:
    """Point file descriptor 1 to stderr, for what does not print through `sys.stdout`."""
    saved = None
    with suppress(OSError):
        saved = os.dup(1)
        os.dup2(2, 1)
    _kept[:] = [] if saved is None else [saved]
    try:
        yield
    finally:
        _kept.clear()
        if saved is not None:
            os.dup2(saved, 1)
            os.close(saved)


def _write(data: object, stream: TextIO) -> None:
    text = json.dumps(strict(data), indent=2, ensure_ascii=False, allow_nan=False)
    try:
        text.encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:  # an old locale, or a path that is not text
        text = json.dumps(strict(data), indent=2, allow_nan=False)
    print(text, file=stream, flush=True)


def strict(value: object) -> Any:
    """Return a value as JSON knows it: records as objects, paths and numbers that are none as text.

    Raises:
        TypeError: If there is no such form.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, Path):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: strict(getattr(value, field.name)) for field in fields}
    if isinstance(value, Mapping):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [strict(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no form in JSON")
