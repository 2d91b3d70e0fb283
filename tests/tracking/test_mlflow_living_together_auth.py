"""Servers that ask who one is: MLflow's own login, and a proxy in front that wants a token."""

from __future__ import annotations

import base64
import http.client
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from stabexp.tracking.credentials import denied

pytestmark = pytest.mark.slow

TRAIN = """\
import torch
from torch import nn


def train(run):
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in run.steps(data, model=model, optimizer=optimizer):
        loss = ((model(x) - y) ** 2).mean()
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

CONFIG = """\
[mlflow]
default_permission = READ
database_uri = sqlite:///{folder}/login.db
admin_username = ada
admin_password = the-right-password
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
"""

TOKEN = "the-right-token"
LOGIN = {
    "MLFLOW_TRACKING_USERNAME": "ada",
    "MLFLOW_TRACKING_PASSWORD": "the-right-password",
}


class Proxy(BaseHTTPRequestHandler):
    """Passes on to a server what carries the token."""

    protocol_version = "HTTP/1.1"
    target = ""

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._answer(401, {}, b"<html>who are you?</html>")
            return
        server = http.client.HTTPConnection(self.target, timeout=30)
        kept = {k: v for k, v in self.headers.items() if k.lower() not in {"host", "connection"}}
        server.request(self.command, self.path, body, kept)
        answer = server.getresponse()
        self._answer(answer.status, dict(answer.getheaders()), answer.read())
        server.close()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass_on

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        if "content-type" in {name.lower() for name in headers}:
            kind = next(v for k, v in headers.items() if k.lower() == "content-type")
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def login(served, tmp_path_factory) -> Iterator[str]:
    """A server with MLflow's own login."""
    pytest.importorskip("flask_wtf", reason="mlflow's login needs Flask-WTF (mlflow[auth])")
    folder = tmp_path_factory.mktemp("login")
    (folder / "auth.ini").write_text(CONFIG.format(folder=folder))
    environment = {
        "MLFLOW_AUTH_CONFIG_PATH": str(folder / "auth.ini"),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "for this test",
    }
    with served(folder, "--app-name", "basic-auth", **environment) as address:
        yield address


@pytest.fixture
def proxy(server) -> Iterator[str]:
    """A proxy before the server."""
    handler = type("ToServer", (Proxy,), {"target": server.removeprefix("http://")})
    listening = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    listening.daemon_threads = True
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{listening.server_port}"
    listening.shutdown()
    listening.server_close()


def stabexp(uri: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_")}
    return subprocess.run(
        [sys.executable, "-m", "stabexp.cli", *arguments],
        env=kept
        | {"MLFLOW_TRACKING_URI": uri, "MLFLOW_DISABLE_TELEMETRY": "true", "COLUMNS": "1000"}
        | environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def losses(uri: str, run_id: str, header: str) -> list[int]:
    """Return the steps whose losses arrived."""

    def ask(call: str, body: dict | None = None) -> dict:
        request = urllib.request.Request(
            f"{uri}/api/2.0/mlflow/{call}",
            json.dumps(body).encode() if body else None,
            {"Content-Type": "application/json", "Authorization": header},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    found = ask("experiments/get-by-name?experiment_name=stabexp")["experiment"]["experiment_id"]
    wanted = {"experiment_ids": [found], "filter": f"tags.`stabexp.run_id` = '{run_id}'"}
    (run,) = ask("runs/search", wanted)["runs"]
    history = ask(f"metrics/get-history?run_id={run['info']['run_id']}&metric_key=loss")
    return [point["step"] for point in history["metrics"]]


NOTHING = (
    {},
    "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN",
)
PASSWORD = (
    LOGIN | {"MLFLOW_TRACKING_PASSWORD": "guessed"},
    "does not accept MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
)
WRONG_TOKEN = (
    {"MLFLOW_TRACKING_TOKEN": "guessed"},
    "does not accept MLFLOW_TRACKING_TOKEN; correct it",
)


@pytest.mark.parametrize(
    ("which", "at_first", "then", "right"),
    [
        pytest.param("login", NOTHING, PASSWORD, LOGIN, id="a user's password"),
        pytest.param("proxy", WRONG_TOKEN, NOTHING, {"MLFLOW_TRACKING_TOKEN": TOKEN}, id="a token"),
    ],
)
def test_wrong_credentials_lose_nothing_and_the_right_ones_deliver_it(
    request, tmp_path, which, at_first, then, right
):
    wrong, named = at_first
    uri = request.getfixturevalue(which)
    (tmp_path / "train.py").write_text(TRAIN, "utf-8")
    done = stabexp(uri, "run", "train.py:train", "-o", "steps=40", "-q", **wrong)
    assert done.returncode == 0, done.stderr
    assert "trained 40 steps" in done.stdout
    (directory,) = (tmp_path / "stabexp_runs" / "runs").iterdir()
    assert f"warning: {uri}: " in done.stderr
    assert named in done.stderr
    assert f"send it later with: stabexp sync {directory.name}" in done.stderr
    assert "guessed" not in done.stderr + (directory / "upload.log").read_text()
    assert len((directory / "steps.jsonl").read_text().splitlines()) == 40

    deadline = time.monotonic() + 60
    while "error: " not in (directory / "upload.log").read_text():  # its last word
        assert time.monotonic() < deadline, (directory / "upload.log").read_text()
        time.sleep(0.2)
    wrong, named = then
    again = stabexp(uri, "sync", **wrong)
    assert named in again.stdout
    assert "guessed" not in again.stdout + again.stderr
    sent = stabexp(uri, "sync", **right)
    assert sent.stdout == f"{directory.name}: everything has arrived\n", sent.stderr
    pair = ":".join(LOGIN.values()).encode()
    header = f"Basic {base64.b64encode(pair).decode()}" if which == "login" else f"Bearer {TOKEN}"
    assert losses(uri, directory.name, header) == list(range(40))


def test_the_right_credentials_need_no_second_try(login, tmp_path):
    (tmp_path / "train.py").write_text(TRAIN, "utf-8")
    done = stabexp(login, "run", "train.py:train", "-o", "steps=40", "-q", **LOGIN)
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("environment", "known", "told"),
    [
        ({"MLFLOW_TRACKING_USERNAME": "ada"}, False, "set MLFLOW_TRACKING_PASSWORD too"),
        (LOGIN, True, "does not let the user in MLFLOW_TRACKING_USERNAME write there"),
        ({"MLFLOW_TRACKING_TOKEN": "x"}, True, "does not let the owner of MLFLOW_TRACKING_TOKEN"),
    ],
)
def test_what_is_told_names_variables_and_no_secret(environment, known, told):
    text = denied("http://a", environment, known=known)
    assert told in text
    assert not set(environment.values()) & set(text.split())
