"""A real Prometheus scrapes a real endpoint of a real run, and answers what the board asks."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from importlib.resources import files

import pytest
import yaml
from made_runs import everything

from stabexp import api
from stabexp.boards import DASHBOARD, METRICS, RULES, packaged
from stabexp.boards.server import MetricsServer
from stabexp.boards.shown_runs import Wanted

EXPERIMENT = """\
name: late
seed: 0
steps: 60
threads: 1
task: mlp
optimizer: {name: sgd, lr: 8.0}
schedule: {name: constant, warmup_steps: 50}
checkpoint: {every: 20}
monitors: {full: {}, loss_curve: {window: 2}}
tracking: {uri: "http://127.0.0.1:9"}
"""
BOARD = json.loads(packaged(DASHBOARD))
ALERTS = [rule for group in yaml.safe_load(packaged(RULES))["groups"] for rule in group["rules"]]
EXPRESSIONS = [
    pytest.param(target["expr"], id=f"{panel['title']} {target['refId']}")
    for panel in BOARD["panels"]
    for target in panel.get("targets", ())
] + [pytest.param(each["expr"], id=each["name"]) for each in BOARD["annotations"]["list"]]
QUERIES = [
    variable["query"]["query"]
    for variable in BOARD["templating"]["list"]
    if variable["type"] == "query"
]


class Prometheus:
    """A server of its own, which scrapes twice a second."""

    def __init__(self, folder, target):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        config = {
            "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
            "rule_files": [str(files("stabexp.boards") / RULES)],
            "scrape_configs": [{"job_name": "stabexp", "static_configs": [{"targets": [target]}]}],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self.log = (folder / "log").open("wb")
        self.process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={self.url.removeprefix('http://')}",
            ],
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )

    def ask(self, what, **parameters):
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{what}?{query}", timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, expr):
        return self.ask("query", query=expr)["result"]

    def until(self, expr):
        deadline = time.monotonic() + 90
        while True:
            assert self.process.poll() is None, "Prometheus ended"
            try:
                if self.query(expr):
                    return
            except (urllib.error.URLError, ConnectionError):
                pass
            assert time.monotonic() < deadline, expr
            time.sleep(0.2)

    def end(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Prometheus with some seconds of a real run, and of one that has every number."""
    if shutil.which("prometheus") is None:
        pytest.skip("needs the Debian package prometheus")
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "exp.yaml").write_text(EXPERIMENT)
    api.run(folder / "exp.yaml", root=folder, drain_seconds=0)
    everything(folder)
    endpoint = MetricsServer(Wanted(root=folder), host="127.0.0.1", port=0)
    thread = threading.Thread(target=endpoint.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    server = Prometheus(folder, endpoint.url.removeprefix("http://"))
    try:
        server.until("count_over_time(stabexp_exporter_info[1m]) >= 4")
        yield server
    finally:
        server.end()
        endpoint.shutdown()
        endpoint.server_close()
        thread.join()


def filled(expr):
    """Return an expression as Grafana sends it."""
    return expr.replace("$run", ".*").replace("$layer", ".*").replace("$__rate_interval", "1m")


@pytest.mark.parametrize("expr", EXPRESSIONS)
def test_an_expression_of_the_board_has_data(served, expr):
    assert served.query(filled(expr))


@pytest.mark.parametrize("query", QUERIES)
def test_a_variable_of_the_board_has_values(served, query):
    series, label = re.fullmatch(r"label_values\((.*), (\w+)\)", query).groups()
    assert served.ask(f"label/{label}/values", **{"match[]": filled(series)})


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_what_a_rule_asks_for_is_there(served, rule):
    served.query(rule["expr"])  # it can be evaluated
    missing = set()
    for name in re.findall(r"\bstabexp_\w+", rule["expr"]):
        if not served.query(name):
            missing.add(name)
    assert not missing


def test_the_target_is_up_and_nothing_was_dropped(served):
    assert served.query("up == 1")
    for target in served.ask("targets")["activeTargets"]:
        assert target["lastError"] == ""


def test_the_real_run_has_its_layers_in_the_metrics_of_the_board(served):
    for name in (
        "stabexp_layer_gradient_norm",
        "stabexp_layer_update_ratio",
        "stabexp_layer_activation_sparsity_ratio",
        "stabexp_loss_second_derivative",
    ):
        assert served.query(f'{name}{{run=~"late-.*"}}')


def test_helps_and_types_arrive(served):
    known = served.ask("metadata")
    for metric in METRICS.values():
        told = known.get(metric.name) or known[metric.series]  # OpenMetrics has the family's
        assert (told[0]["help"], told[0]["type"]) == (metric.help, metric.kind)


def test_alerts_of_both_runs_fire_with_whole_texts(served):
    served.until('ALERTS{alertname="StabexpRecoveryGaveUp", alertstate="firing"}')
    alerts = served.ask("alerts")["alerts"]
    firing = {
        (a["labels"]["alertname"], a["labels"]["run"]) for a in alerts if "run" in a["labels"]
    }
    assert any(name == "StabexpDiverged" and run.startswith("late-") for name, run in firing)
    assert {("StabexpDiverged", "half-1"), ("StabexpVerdictReady", "half-1")} <= firing
    for alert in alerts:
        text = " ".join(alert["annotations"].values())
        assert "{{" not in text
        assert "<no value>" not in text
        assert "error" not in text.lower() or "raised an error" in text
