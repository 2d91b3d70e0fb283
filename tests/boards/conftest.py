"""Prometheus' own tools, and the endpoint in a thread of this process."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stabexp.boards.server import MetricsServer
from stabexp.boards.shown_runs import Wanted


@pytest.fixture
def promtool() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run promtool; without it the test is skipped."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("needs promtool, of the Debian package prometheus")

    def call(*arguments: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *map(str, arguments)],
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )

    return call


@pytest.fixture
def endpoint(tmp_path) -> Iterator[MetricsServer]:
    """The endpoint for the runs below this test's own folder."""
    server = MetricsServer(Wanted(root=tmp_path), host="127.0.0.1", port=0)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()
