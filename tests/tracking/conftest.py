"""A real MLflow server for the tests of this package, and connections that come and go."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import stabexp

HOME = str(Path(stabexp.__file__).parent.parent)
ENVIRONMENT = os.environ | {
    "PYTHONPATH": HOME,
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_MODEL_CATALOG_URI": "",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def _served(home: Path, *options: str, **environment: str) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--workers", "1", "--backend-store-uri", f"sqlite:///{home}/mlflow.db"]
    command += ["--artifacts-destination", str(home / "artifacts"), *options]
    with open(home / "server.log", "wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=ENVIRONMENT | environment, start_new_session=True
        )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            if process.poll() is not None:
                raise RuntimeError((home / "server.log").read_text())
            try:
                with urllib.request.urlopen(f"{address}/health", timeout=1):
                    break
            except OSError:
                time.sleep(0.1)
        yield address
    finally:
        os.killpg(process.pid, 15)
        process.wait(30)


@pytest.fixture(scope="session")
def served():
    """Start an MLflow server over a new database in a folder; its address, while in the block."""
    return _served


@pytest.fixture(scope="session")
def server(tmp_path_factory, served) -> Iterator[str]:
    """The address of an MLflow server over a new database."""
    with served(tmp_path_factory.mktemp("server")) as address:
        yield address


@pytest.fixture(scope="session")
def database(tmp_path_factory) -> Path:
    """An empty MLflow database, to be copied: making one takes two seconds."""
    file = tmp_path_factory.mktemp("database") / "mlflow.db"
    code = f"import mlflow; mlflow.MlflowClient('sqlite:///{file}').search_experiments()"
    subprocess.run([sys.executable, "-c", code], check=True, env=ENVIRONMENT, capture_output=True)
    return file


class Gate:
    """A port that forwards to another one, once it is opened: a server that is down at first."""

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self._target = target
        self._listener: socket.socket | None = None

    def open(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close(self) -> None:
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket) -> None:
        with source:
            try:
                while data := source.recv(1 << 16):
                    sink.sendall(data)
                sink.shutdown(socket.SHUT_WR)
            except OSError:
                pass


@pytest.fixture
def gate(server) -> Iterator[Gate]:
    """A closed gate in front of the server."""
    gate = Gate(int(server.rpartition(":")[2]))
    yield gate
    gate.close()
