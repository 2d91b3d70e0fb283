"""`lr-find` and `clip-advice` as they are typed."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
MLP = """
name: small
task: mlp
optimizer: {name: sgd, lr: 0.01}
schedule: {warmup_steps: 10}
steps: 60
threads: 1
"""
LOOP = """
import torch

def train(run, lr=0.01):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for x, y in run.steps(data, model=model, optimizer=optimizer):
        loss = ((model(x) - y - x.sum(1, keepdim=True)) ** 2).mean()
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.fixture
def experiment(tmp_path):
    file = tmp_path / "exp.yaml"
    file.write_text(MLP, "utf-8")
    return file


def test_lr_find_shows_curve_figure_trials_and_the_command(stabexp_command, experiment, tmp_path):
    done = stabexp_command("lr-find", experiment, "--trial-steps", 30, "--plot", "ramp.svg")
    assert done.code == 0, done.errors
    for part in ("▇", "the ramp's figure", "10 steps of warmup", "no warmup", "suggestion:"):
        assert part in done.out
    assert "bit for bit (sha256" in " ".join(done.out.split())
    assert f"train with it: stabexp run {experiment} -o optimizer.lr=" in done.out
    assert ElementTree.parse("ramp.svg").getroot().tag.endswith("svg")
    assert {path.name for path in tmp_path.iterdir()} == {"exp.yaml", "ramp.svg"}  # no run


def test_lr_find_of_a_function_tells_the_factor_on_its_own_rate(stabexp_command, tmp_path):
    (tmp_path / "train.py").write_text(LOOP, "utf-8")
    done = stabexp_command("lr-find", "train.py:train", "--trial-steps", 0, "--json")
    assert done.code == 0, done.errors
    found = json.loads(done.out)
    factor = float(found["command"].rpartition("interventions.learning_rate=")[2])
    assert factor * found["configured"] == pytest.approx(found["rate"], rel=0.01)
    assert len(found["losses"]) == len(found["rates"])


def test_lr_find_of_a_training_that_learns_nothing_is_an_error(stabexp_command, experiment):
    done = stabexp_command("lr-find", experiment, "--last", 1e-6, "--steps", 60)
    assert done.code == 1
    assert "does not fall clearly at any rate from 1e-07 to 1e-06" in done.errors


def test_clip_advice_for_a_run_that_bursts_is_less_than_its_bursts(stabexp_command):
    bursts = EXPERIMENTS / "unclipped_bursts.yaml"
    assert stabexp_command("run", "-q", bursts).code == 3
    done = stabexp_command("clip-advice", "unclipped")
    assert done.code == 0, done.errors
    assert "bursts (above" in done.out
    assert "set 2.6" in done.out
    assert "the run does not clip" in done.out
    command = done.out.rpartition("try it: ")[2].split()
    assert command[:2] == ["stabexp", "replay"]
    replayed = stabexp_command(*command[1:])  # what it says can be typed
    assert "cured" in replayed.out
