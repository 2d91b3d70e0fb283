"""Real logs, written once for all tests of this package, and a short way to diagnose one."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import pytest
from diagnosis.make_logs import hugging_face, json_lines, lightning, plain, tensorboard


@pytest.fixture(scope="session")
def logs(tmp_path_factory) -> Path:
    """A folder with one log of every kind, of the same training turning bad at step 40."""
    folder = tmp_path_factory.mktemp("logs")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other people's packages, as they train
        hugging_face(folder / "trainer", turn=40, report_to=("tensorboard",))
        lightning(folder / "lightning", turn=40)
        rows = plain(turn=40)
        json_lines(folder / "plain.jsonl", rows)
        tensorboard(folder / "events", rows)
    return folder


def calm(count: int, level: float = 2.0) -> list[float]:
    """Return losses that fall slowly, with some noise, the same on every call."""
    return [level * 0.995**i + 0.02 * math.sin(7.3 * i) for i in range(count)]


@pytest.fixture
def write(tmp_path):
    """Write a file into the test's folder; return its path."""

    def put(name: str, content: str | bytes) -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    return put
