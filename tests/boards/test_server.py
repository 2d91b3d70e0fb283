"""The endpoint over HTTP: what it answers, to whom, and what it never does."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from made_runs import everything, made_run, step
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from stabexp.boards.metrics import METRICS
from stabexp.boards.server import MetricsServer
from stabexp.boards.shown_runs import Wanted
from stabexp.errors import StabexpError

COMMAND = Path(sys.executable).with_name("stabexp")


def get(endpoint, path, **headers):
    request = urllib.request.Request(endpoint.url + path, headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.headers, answer.read().decode()


def test_promtool_has_nothing_to_say_against_the_metrics(endpoint, tmp_path, promtool):
    everything(tmp_path)
    _, text = get(endpoint, "/metrics")
    checked = promtool("check", "metrics", given=text)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    served = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert served == {metric.series for metric in METRICS.values()}


def test_openmetrics_is_given_to_who_asks_for_it(endpoint, tmp_path):
    everything(tmp_path)
    headers, text = get(endpoint, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families.keys() == METRICS.keys()
    assert families["stabexp_alarms"].type == "counter"


def test_numbers_that_are_not_finite_are_told(endpoint, tmp_path):
    made_run(tmp_path, steps=[step(0, loss=float("nan"), grad_norm=float("inf"))])
    _, text = get(endpoint, "/metrics")
    assert 'stabexp_loss{run="run-1"} NaN' in text
    assert 'stabexp_gradient_norm{run="run-1"} +Inf' in text


def test_a_strange_name_of_a_layer_breaks_nothing(endpoint, tmp_path, promtool):
    layers = {'a"b\\c\nd{}': {"grad_norm": 1.0}}
    made_run(tmp_path, steps=[step(0, layers=layers)])
    _, text = get(endpoint, "/metrics")
    assert 'layer="a\\"b\\\\c\\nd{}"' in text
    assert promtool("check", "metrics", given=text).returncode == 0


def test_a_new_step_is_in_the_next_answer(endpoint, tmp_path, monkeypatch):
    monkeypatch.setattr("stabexp.boards.collector.FRESH_SECONDS", 0.0)
    directory = made_run(tmp_path, steps=[step(0)])
    for number in (1, 2):
        directory.log_step(step(number))
        assert f'stabexp_latest_step{{run="run-1"}} {number}.0' in get(endpoint, "/metrics")[1]


def test_many_readers_at_once_cost_as_much_as_one(endpoint, tmp_path):
    made_run(tmp_path, steps=[step(0)])
    refreshed = []
    real = endpoint.collector._shown.refresh
    endpoint.collector._shown.refresh = lambda: refreshed.append(1) or real()
    readers = [threading.Thread(target=get, args=(endpoint, "/metrics")) for _ in range(8)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert len(refreshed) < 8


def test_the_page_lists_the_runs_and_escapes_what_it_shows(endpoint, tmp_path):
    made_run(tmp_path, "<b>bold", steps=[step(3, loss=1.25)])
    _, text = get(endpoint, "/")
    assert "&lt;b&gt;bold" in text
    assert "<b>" not in text
    assert ">1.25<" in text


@pytest.mark.parametrize(
    ("path", "begins"),
    [
        ("/-/healthy", "healthy"),
        ("/grafana_dashboard.json", '{\n "title": "stabexp'),
        ("/alert_rules.yaml", "# Alert rules"),
    ],
)
def test_it_also_answers(endpoint, path, begins):
    assert get(endpoint, path)[1].startswith(begins)


def test_what_is_not_there_is_a_404(endpoint):
    with pytest.raises(urllib.error.HTTPError) as error:
        get(endpoint, "/../run.json")
    with error.value as answer:
        assert answer.code == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_it_takes_nothing(endpoint, method):
    connection = http.client.HTTPConnection(*endpoint.server_address)
    connection.request(method, "/metrics")
    assert connection.getresponse().status == 501
    connection.close()


def test_a_head_has_no_body(endpoint):
    connection = http.client.HTTPConnection(*endpoint.server_address)
    connection.request("HEAD", "/metrics")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"")
    assert int(answer.headers["Content-Length"]) > 0
    connection.close()


def test_an_error_is_told_to_who_runs_it_and_not_to_who_asks(endpoint, capfd):
    def fail():
        raise RuntimeError("secret place")

    endpoint.collector._shown.refresh = fail
    with pytest.raises(urllib.error.HTTPError) as error:
        get(endpoint, "/metrics")
    with error.value as answer:
        assert (answer.code, "secret place" in answer.read().decode()) == (500, False)
    assert "secret place" in capfd.readouterr().err


def test_a_port_that_is_taken_is_told(endpoint, tmp_path):
    with pytest.raises(StabexpError, match="cannot be listened on"):
        MetricsServer(Wanted(root=tmp_path), host="127.0.0.1", port=endpoint.server_address[1])


def test_the_command_listens_on_this_machine_only_and_ends_with_ctrl_c(tmp_path):
    made_run(tmp_path, steps=[step(0)])
    process = subprocess.Popen(
        [COMMAND, "metrics", "--root", tmp_path, "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(address, timeout=30) as answer:
            assert b'stabexp_latest_step{run="run-1"} 0.0' in answer.read()
        before = sorted(os.listdir(tmp_path / "runs" / "run-1"))
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert sorted(os.listdir(tmp_path / "runs" / "run-1")) == before
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_the_command_prints_the_metrics_once(stabexp_command, tmp_path):
    made_run(tmp_path, steps=[step(4)])
    done = stabexp_command("metrics", "--once", "--root", tmp_path)
    assert done.code == 0
    assert 'stabexp_latest_step{run="run-1"} 4.0' in done.out


def test_the_command_writes_out_the_dashboard_and_the_rules(stabexp_command, tmp_path):
    done = stabexp_command("metrics", "--dashboard", tmp_path, "--rules", tmp_path / "my.yaml")
    assert done.out.split() == [str(tmp_path / "grafana_dashboard.json"), str(tmp_path / "my.yaml")]
    assert (tmp_path / "my.yaml").read_text().startswith("# Alert rules")


def test_a_place_that_cannot_be_written_is_told(stabexp_command, tmp_path):
    done = stabexp_command("metrics", "--rules", tmp_path / "none" / "x.yaml")
    assert done.code == 1
    assert "cannot be written" in done.errors


def test_without_the_client_it_says_how_to_get_it(stabexp_command, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = stabexp_command("metrics", "--root", tmp_path)
    assert done.code == 1
    assert "pip install 'stabexp[prometheus]'" in " ".join(done.errors.split())
