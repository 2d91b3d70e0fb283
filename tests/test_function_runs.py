"""One training function, three doors: a file that names it, a reference to it, and itself."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

import stabexp
from stabexp import api
from stabexp.errors import ConfigError
from stabexp.records import StepRecord
from stabexp.reporting.live import RunDisplay
from stabexp.tracking import settled_uri

pytestmark = pytest.mark.usefixtures("nowhere", "no_uploader_left")

NET = "from torch import nn\n\n\ndef model():\n    return nn.Linear(8, 1)\n"
TRAIN = """\
import torch

import net
import stabexp


def data():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(256, 8, generator=generator)
    return torch.utils.data.TensorDataset(x, x @ torch.randn(8, 1, generator=generator))


def train(run, lr=0.02, name="sgd"):
    model = net.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for x, y in run.steps(data(), model=model, optimizer=optimizer):
        loss = ((model(x) - y) ** 2).mean()
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
GUARDED = (
    TRAIN
    + """\

if __name__ == "__main__":
    result = stabexp.run(train, steps=30, threads=1, batch={"size": 16}, args={"lr": 0.7},
                         checkpoint={"every": 4}, drain_seconds=0)
    print(result.run_id)
"""
)
YAML = """\
name: train
steps: 30
threads: 1
train: {name: "train.py:train", args: {lr: 0.7}}
batch: {size: 16}
checkpoint: {every: 4}
"""
OPTIONS = ["steps=30", "threads=1", "batch.size=16", "train.args.lr=0.7", "checkpoint.every=4"]


@pytest.fixture
def folder(tmp_path) -> Path:
    """The working directory, with a training function in two files."""
    (tmp_path / "net.py").write_text(NET, "utf-8")
    (tmp_path / "train.py").write_text(TRAIN, "utf-8")
    return tmp_path


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"PYTHONPATH": str(Path(stabexp.__file__).parents[1]), "COLUMNS": "1000"},
    )


def recorded(run_id: str) -> list[tuple]:
    """Return what decides whether two runs are the same training."""
    return [(r.loss, r.digest, r.sample_ids) for r in api.load(run_id).records]


@pytest.mark.slow
def test_the_three_doors_record_the_same_run_and_the_same_replays(folder):
    (folder / "exp.yaml").write_text(YAML, "utf-8")
    from_file = api.run("exp.yaml", drain_seconds=0)
    (folder / "train.py").write_text(GUARDED, "utf-8")
    by_name = api.run("train.py:train", OPTIONS, drain_seconds=0)
    done = python("train.py")
    assert done.returncode == 0, done.stderr
    itself = done.stdout.strip()

    ids = (from_file.run_id, by_name.run_id, itself)
    assert recorded(ids[0]) == recorded(ids[1]) == recorded(ids[2])
    assert from_file.divergence is not None
    runs = [stabexp.load(run_id) for run_id in ids]
    fingerprints = [
        json.loads((run.directory / "fingerprint.json").read_text("utf-8")) for run in runs
    ]
    assert len({each["configuration"] for each in fingerprints}) == 1
    assert fingerprints[1]["code"] == fingerprints[2]["code"] != fingerprints[0]["code"]

    verdicts = [
        api.bisect(run_id, workers=0, variables=["learning_rate"], drain_seconds=0)
        for run_id in ids[1:]
    ]
    keys = [[t.spec.key for t in api.load(run_id).trial_records] for run_id in ids[1:]]
    assert keys[0] == keys[1]
    assert verdicts[0].cause == verdicts[1].cause == "learning_rate"
    assert verdicts[0].fix == verdicts[1].fix != {}
    ((key, dose),) = verdicts[0].fix.items()
    again = ["stabexp", "run", "train.py:train"]
    again += [part for text in [*OPTIONS, f"{key}={dose}"] for part in ("-o", text)]
    for verdict in verdicts:
        assert verdict.path[0].answer == "yes"  # the unchanged replay is equal bit for bit
        assert sorted(shlex.split(verdict.next_command)) == sorted(again)


@pytest.mark.slow
def test_a_script_is_bisected_by_workers_and_its_next_command_trains_through(folder):
    (folder / "train.py").write_text(GUARDED, "utf-8")
    run_id = python("train.py").stdout.strip()
    wishes = {"workers": 1, "variables": ["learning_rate"], "drain_seconds": 0}
    command = api.bisect(run_id, **wishes).next_command
    done = python("-m", "stabexp.cli", *shlex.split(command)[1:], "-q")
    assert done.returncode == 0, done.stderr
    assert "trained 30 steps" in done.stdout


@pytest.mark.slow
def test_a_function_of_a_package_is_found_again_also_when_python_m_runs_it(folder):
    package = folder / "pkg" / "deep"
    package.mkdir(parents=True)
    (folder / "pkg" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "net.py").write_text(NET, "utf-8")
    (package / "train.py").write_text(GUARDED.replace("import net", "from . import net"), "utf-8")
    done = python("-m", "pkg.deep.train")
    assert done.returncode == 0, done.stderr
    run = stabexp.load(done.stdout.strip())
    source = json.loads((run.directory / "source.json").read_text("utf-8"))
    assert source["name"] == "pkg.deep.train:train"
    assert source["base"] == str(folder)
    wishes = ["--variables", "learning_rate", "--workers", "1"]
    verdict = python("-m", "stabexp.cli", "bisect", run.run_id, "-q", *wishes)
    assert verdict.returncode == 0, verdict.stderr
    command = "stabexp run pkg.deep.train:train -o steps=30"
    assert command in verdict.stdout


UNGUARDED = TRAIN + "\nstabexp.run(train, steps=3)\n"


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["train.py"], id="the script"),
        pytest.param(["-m", "stabexp.cli", "run", "train.py:train"], id="the command"),
        pytest.param(["-m", "pkg.train"], id="a module of a package"),
    ],
)
@pytest.mark.slow
def test_a_call_without_a_guard_is_told_so_and_does_not_call_itself(folder, command):
    (folder / "train.py").write_text(UNGUARDED, "utf-8")
    (folder / "pkg").mkdir()
    (folder / "pkg" / "train.py").write_text(UNGUARDED, "utf-8")
    done = python(*command)
    assert done.returncode != 0
    assert done.stderr.count("put the call below the line: if __name__ == ") >= 1
    assert "stabexp.run was called while" in done.stderr
    assert "RecursionError" not in done.stderr
    assert not Path("stabexp_runs").exists()


@pytest.mark.parametrize(
    ("what", "settings", "message"),
    [
        ("train.py:tain", {}, "train.py:tain: no 'tain' in train.py; did you mean 'train'?"),
        ("trian.py:train", {}, "trian.py:train: no such file "),
        ("nowhere.at.all:train", {}, "nowhere.at.all:train: no module named 'nowhere'"),
        ("train.py", {}, "name the function in it: train.py:train"),
        (7, {}, "run: expected an experiment file, 'train.py:train' or a function, found 7"),
        ("train.py:train", {"stpes": 3}, "stpes=3: stpes: unknown key; did you mean 'steps'?"),
        ("train.py:train", {"batch": {"size": 0}}, "batch.size=0: batch.size: expected greater"),
        (
            "train.py:train",
            {"args": {"lrr": 1}},
            "train.args: got an unexpected keyword argument 'lrr'; it is train(run, lr=0.02",
        ),
        ("train.py:train", {"args": 3}, "args=3: expected a mapping"),
        (
            "train.py:train",
            {"args": {"device": Path("cpu")}},
            "args.device: a value of type PosixPath cannot be written down",
        ),
        ("train.py:train", {"task": "mlp"}, "train.py:train: train: is given beside task"),
    ],
)
def test_a_mistake_is_told_with_place_value_and_remedy(folder, what, settings, message):
    with pytest.raises(ConfigError) as caught:
        api.run(what, **settings)
    assert message in str(caught.value)
    assert not Path("stabexp_runs").exists()


@pytest.mark.parametrize(
    ("uri", "kept"),
    [
        ("sqlite:///mlflow.db", "sqlite:///{here}/mlflow.db"),
        ("sqlite:////a/b.db?mode=ro", "sqlite:////a/b.db?mode=ro"),
        ("http://127.0.0.1:9", "http://127.0.0.1:9"),
    ],
)
def test_a_run_goes_to_the_users_store_and_the_address_holds_in_any_folder(tmp_path, uri, kept):
    assert settled_uri(uri) == kept.format(here=tmp_path)


def test_settings_in_the_place_of_overrides_are_told_how_to_be_given(folder):
    with pytest.raises(ConfigError, match="give settings by name: steps=400"):
        api.run("train.py:train", "steps=3")


def test_a_run_without_a_length_is_shown_without_one():
    shown = io.StringIO()
    display = RunDisplay(Console(file=shown), steps=None)
    for step in range(35):
        display.step(StepRecord(step=step, time=0.0, loss=1.0, lr=0.1, grad_norm=1.0))
    steps = [int(line.split()[1]) for line in shown.getvalue().splitlines()]
    assert steps == [*range(1, 11), 20, 30]
