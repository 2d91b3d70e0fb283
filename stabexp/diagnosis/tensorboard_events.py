"""TensorBoard event files: the scalars of a run, also of one that wrote several files.

An event file is a row of records, each with its length in front. The records are taken apart here,
so that a file that is still being written, or was cut, gives what is whole; what is in a record is
TensorBoard's to read.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from stabexp.diagnosis.log import Keep, Log, Series
from stabexp.errors import ConfigError

NAME = "tfevents"
"""Part of the name of every event file."""
LARGEST = 1 << 28
"""Bytes of one record; a longer one is junk."""
_NUMBERS = {1: "f", 2: "d", 3: "i", 9: "q"}
"""TensorFlow's type numbers → how one value is stored."""


def read_events(files: Sequence[tuple[str, Path]], keep: Keep) -> Log:
    """Return the scalars of event files, in the order of the files.

    Args:
        files: What to put in front of a file's names ("" for nothing), and the file.
        keep: As for every reader.

    Raises:
        ConfigError: If TensorBoard is not installed, or a file holds no event.
    """
    event = _event_type()
    series: dict[str, Series] = {}
    others: dict[str, None] = {}
    warnings = []
    for prefix, path in files:
        whole = 0
        for record in _records(path):
            try:
                read = event.FromString(record)
            except Exception:  # protobuf's own error, of which every version has another
                break
            whole += len(record) + 16
            for tag, value in _scalars(read):
                name = named(prefix, tag)
                if keep(name):
                    series.setdefault(name, Series()).add(read.step, value)
                else:
                    others[name] = None
        size = path.stat().st_size
        if not whole:
            raise ConfigError(f"{path}: is no TensorBoard event file, or nothing in it is whole")
        if whole < size:
            warnings.append(
                f"{path.name} ends in the middle: the last {size - whole} of {size} bytes could "
                "not be read"
            )
    return Log(format="TensorBoard events", series=series, others=list(others), warnings=warnings)


def named(folder: str, tag: str) -> str:
    """Return a curve's name; `add_scalars("Loss", {"train": …})` puts "Loss" in "Loss_train/"."""
    if not folder:
        return tag
    inside = folder.removeprefix(f"{re.sub(r'[^A-Za-z0-9_.-]', '_', tag)}_")
    return f"{tag}/{inside}" if inside != folder else f"{folder}/{tag}"


def _event_type() -> Any:
    try:
        from tensorboard.compat.proto.event_pb2 import Event
    except ImportError as error:
        raise ConfigError(
            "TensorBoard event files need the tensorboard package: "
            "pip install 'stabexp[tensorboard]'"
        ) from error
    return Event


def _records(path: Path) -> Iterator[bytes]:
    """Yield the records that are whole: length (8 bytes), check sum (4), record, check sum (4)."""
    try:
        with path.open("rb") as file:
            while len(front := file.read(12)) == 12:
                (length,) = struct.unpack("<Q", front[:8])
                if length > LARGEST:
                    return
                record = file.read(length)
                if len(record) < length or len(file.read(4)) < 4:
                    return
                yield record
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error


def _scalars(event: Any) -> Iterator[tuple[str, float]]:
    for value in event.summary.value:
        kind = value.WhichOneof("value")
        if kind == "simple_value":
            yield value.tag, value.simple_value
        elif kind == "tensor" and value.tensor.dtype in _NUMBERS:
            found = _number(value.tensor)
            if found is not None:
                yield value.tag, found


def _number(tensor: Any) -> float | None:
    """Return the number of a tensor that holds one, as TensorFlow 2 writes scalars."""
    form = f"<{_NUMBERS[tensor.dtype]}"
    content = tensor.tensor_content
    if len(content) == struct.calcsize(form):
        return float(struct.unpack(form, content)[0])
    for field in (tensor.float_val, tensor.double_val, tensor.int_val, tensor.int64_val):
        if len(field) == 1:
            return float(field[0])
    return None
