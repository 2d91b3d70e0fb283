"""`stabexp diagnose`: what it prints, its exit codes, and the runs that stabexp recorded."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command_line import NOWHERE
from diagnosis.conftest import calm
from diagnosis.make_logs import json_lines, plain

import stabexp
from stabexp import api
from stabexp.diagnosis.advice import BENCHMARK

ROOT = Path(__file__).parents[2]
EXPERIMENT = """\
name: {name}
steps: 60
threads: 1
task: {{name: mlp}}
optimizer: {{name: sgd, lr: {lr}}}
batch: {{size: 32}}
checkpoint: {{every: 20}}
tracking: {{uri: "{uri}"}}
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A root with a run of ours that diverged and one that learned."""
    folder = tmp_path_factory.mktemp("root")
    for name, lr in (("bad", 30.0), ("good", 0.05)):
        file = folder / f"{name}.yaml"
        file.write_text(EXPERIMENT.format(name=name, lr=lr, uri=NOWHERE))
        api.run(file, root=folder / "runs_here", drain_seconds=0)
    return folder / "runs_here"


def test_a_diverged_log_is_told_with_onset_pattern_opinion_and_what_to_do(
    tmp_path, stabexp_command
):
    done = stabexp_command("diagnose", json_lines(tmp_path / "log.jsonl", plain(turn=40)))
    assert done.code == 3
    for said in (
        "diverged (steps 0 to 59)",
        "onset     step 4",
        "pattern   exponential growth",
        "opinion, not a verdict: schedule",
        "not known, so not considered: precision",
        "stabexp run train.py:train && stabexp bisect RUN_ID",
    ):
        assert said in done.out
    assert max(map(len, done.out.splitlines())) <= 100 or str(tmp_path) in done.out


def test_a_healthy_log_is_told_with_what_was_checked(tmp_path, stabexp_command):
    done = stabexp_command("diagnose", json_lines(tmp_path / "log.jsonl", plain()))
    assert done.code == 0
    assert "no divergence found" in done.out
    assert "gradient_explosion" in done.out
    assert "opinion" not in done.out


def test_json_holds_the_whole_diagnosis(tmp_path, stabexp_command):
    log = json_lines(tmp_path / "log.jsonl", plain(turn=40))
    done = stabexp_command("diagnose", log, "--json")
    found = json.loads(done.out)
    assert done.code == 3
    assert found["divergence"]["onset"] == found["onset_between"][1]
    assert set(found) == set(stabexp.Diagnosis.__slots__)


def test_options_reach_the_diagnosis(tmp_path, stabexp_command):
    rows = [{"it": i, "objective": v, "slope": 0.1} for i, v in enumerate(calm(300, 1.0))]
    log = json_lines(tmp_path / "log.jsonl", [row | {"objective": 1.0} for row in rows])
    assert stabexp_command("diagnose", log).code == 2
    done = stabexp_command("diagnose", log, "--loss", "objective", "--lr", "slope")
    assert (done.code, "lr = 'slope', 300 points" in done.out) == (0, True)
    done = stabexp_command("diagnose", log, "--loss", "objective", "--detectors", "plateau")
    assert (done.code, "by plateau" in done.out) == (3, True)
    done = stabexp_command("diagnose", log, "--loss", "objective", "--detectors", "plato")
    assert (done.code, "did you mean 'plateau'" in done.errors) == (2, True)


@pytest.mark.parametrize("by", ["id", "beginning of the id", "directory", "step log"])
def test_a_run_of_ours_is_judged_as_it_was_live(root, no_uploader_left, by):
    (live,) = (run for run in (root / "runs").iterdir() if run.name.startswith("bad"))
    source = {"id": live.name, "directory": live, "step log": live / "steps.jsonl"}.get(by, "bad")
    found = stabexp.diagnose(source, root=root)
    assert found.divergence == stabexp.load(live.name, root=root).divergence
    assert found.next_command == f"stabexp bisect {live.name} --root {root}"
    assert found.settings["precision"] == "fp32"


def test_a_healthy_run_of_ours_is_sent_to_check(root, no_uploader_left, stabexp_command):
    done = stabexp_command("diagnose", "good", "--root", root)
    assert done.code == 0
    assert "stabexp check good-" in done.out


def test_an_unknown_source_is_an_error(stabexp_command):
    done = stabexp_command("diagnose", "nothing")
    assert (done.code, "neither a file or folder, nor a run" in done.errors) == (1, True)


def test_the_figure_it_gives_for_opinions_is_the_benchmarks():
    text = (ROOT / "docs" / "benchmark.md").read_text("utf-8")
    share, runs = re.search(r"telemetry only \| (\d+)%.*of (\d+) \|", text).groups()
    assert f"{share} % of {runs} benchmark runs" in BENCHMARK
