"""A dry run records nothing, leaves the process as it was, and tells where an error is."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

import stabexp
from stabexp.api.checking import is_setup
from stabexp.errors import ConfigError
from stabexp.preflight import preflight_text

TRAINING = """\
import random

import torch


def train(run, mistake="", lr=0.01):
    print("training begins")
    random.random(), torch.rand(3)
    x = torch.randn(64, 4)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5], [0.0]])
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    data = torch.utils.data.TensorDataset(x, y)
    for inputs, targets in run.steps(data, model=model, optimizer=optimizer, epochs=40):
        loss = ((model(inputs) - targets) ** 2).mean()
        if mistake == "raises":
            loss = loss / {}["missing"]
        run.log(loss)
        if mistake != "not cleared":
            optimizer.zero_grad()
        loss.backward()
        if mistake != "never stepped":
            optimizer.step()
"""


@pytest.fixture
def training(tmp_path) -> Path:
    """The file of the training function, in the working directory."""
    (tmp_path / "training.py").write_text(TRAINING, "utf-8")
    return tmp_path / "training.py"


def test_nothing_is_recorded_and_the_process_is_left_as_it_was(training):
    before = sorted(training.parent.rglob("*"))
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    streams = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    settings = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    backward = torch.autograd.backward
    found = stabexp.check_setup("training.py:train", updates=5)
    assert (found.clean, found.updates) == (True, 5)
    assert streams == (
        random.getstate(),
        np.random.get_state()[1].tolist(),
        torch.get_rng_state().tolist(),
    )
    assert settings == (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled())
    assert torch.autograd.backward is backward
    after = [path for path in sorted(training.parent.rglob("*")) if "__pycache__" not in str(path)]
    assert after == before


@pytest.mark.parametrize(
    ("mistake", "name", "where"),
    [
        ("raises", "training_raises", "training.py:17"),
        ("never stepped", "no_update", "the training function"),
        ("not cleared", "gradient_accumulates_over_steps", "training.py:21"),
    ],
)
def test_a_mistake_is_told_with_its_line(training, mistake, name, where):
    (finding,) = stabexp.check_setup("training.py:train", args={"mistake": mistake}).findings
    assert (finding.name, finding.where, finding.certain) == (name, where, True)
    assert finding.change
    assert f"   where    {where}" in preflight_text(
        stabexp.check_setup("training.py:train", args={"mistake": mistake})
    )


def test_the_command_says_nothing_found_and_ends_with_0(training, stabexp_command):
    done = stabexp_command("check", "training.py:train", "--steps", "4")
    assert done.code == 0
    assert done.out.startswith("training.train: nothing found (4 updates in ")
    assert "training begins" in done.errors


def test_the_command_prints_json_and_ends_with_6(training, stabexp_command):
    done = stabexp_command(
        "check", "training.py:train", "-o", "train.args.mistake=not cleared", "--json"
    )
    assert done.code == 6
    (finding,) = json.loads(done.out)["findings"]
    assert finding["name"] == "gradient_accumulates_over_steps"


def test_an_experiment_file_is_examined_as_one(training, stabexp_command):
    Path("exp.yaml").write_text(
        "name: mine\nsteps: 50\nthreads: 1\ntask: {name: mlp, args: {width: 8}}\n"
        "optimizer: {name: sgd, lr: 0.05}\nprecision: fp16\n",
        "utf-8",
    )
    done = stabexp_command("check", "exp.yaml")
    assert done.code == 0, done.out + done.errors
    assert "headroom" in done.out, "in half precision the modules' ranges are shown"
    assert not Path("stabexp_runs").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("exp.yaml", True),
        ("train.py:train", True),
        ("mine.train:train", True),
        ("mlp-3f9c1a", False),
    ],
)
def test_the_argument_says_whether_it_is_a_training_or_a_run(text, expected):
    assert is_setup(text) is expected


def test_a_wrong_argument_is_told_with_its_remedy(training, stabexp_command):
    with pytest.raises(ConfigError, match="updates: 0 is not above 0"):
        stabexp.check_setup("training.py:train", updates=0)
    done = stabexp_command("check", "some-run", "-o", "lr=1")
    assert (done.code, "-o is for a training that has not begun" in done.errors) == (2, True)
    assert stabexp_command("check", "training.py:tran").code == 2
