"""`stabexp health`: what is wrong with a saved state, by name, for our checkpoints and any file."""

from __future__ import annotations

import json

import pytest
import torch
from command_line import NOWHERE
from safetensors.torch import save_file
from torch import nn

import stabexp
from stabexp import api
from stabexp.errors import CheckpointError, RunNotFoundError

EXPERIMENT = """\
name: {name}
steps: 60
threads: 1
task: {{name: mlp, args: {{norm: {norm}}}}}
optimizer: {{name: {optimizer}, lr: {lr}}}
batch: {{size: 32}}
checkpoint: {{every: 20}}
tracking: {{uri: "{uri}"}}
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A root with a run whose weights blew up and one that learned."""
    folder = tmp_path_factory.mktemp("root")
    for name, norm, optimizer, lr in (
        ("bad", "none", "sgd", 1e30),
        ("good", "batch", "adamw", 0.003),
    ):
        file = folder / f"{name}.yaml"
        file.write_text(
            EXPERIMENT.format(name=name, norm=norm, optimizer=optimizer, lr=lr, uri=NOWHERE)
        )
        api.run(file, root=folder / "runs_here", drain_seconds=0)
    return folder / "runs_here"


@pytest.fixture
def model():
    torch.manual_seed(0)
    layers = [nn.Linear(32, 32) for _ in range(6)]
    return nn.Sequential(*layers, nn.BatchNorm1d(32))


def planted(model, fault):
    """Return a training's state with one thing wrong in it."""
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(8, 32)).square().mean().backward()
    optimizer.step()
    with torch.no_grad():
        match fault:
            case "nan":
                model[2].weight[3, 4] = float("nan")
            case "inf in the optimizer":
                optimizer.state[model[1].bias]["exp_avg"][0] = float("inf")
            case "huge":
                model[4].weight[0, 0] = -3e6
            case "bit flip":
                model[4].weight[0, 0] = 2000.0
            case "unlike the others":
                model[5].weight *= 300
            case "second moment":
                optimizer.state[model[0].weight]["exp_avg_sq"][0, 0] = -1e-3
            case "no variance":
                model[6].running_var[7] = 0.0
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 7}


@pytest.mark.parametrize(
    ("fault", "kind", "name"),
    [
        ("nan", "non_finite", "model.2.weight"),
        ("inf in the optimizer", "non_finite", "optimizer.state.3.exp_avg"),
        ("huge", "extreme", "model.4.weight"),
        ("bit flip", "lone_value", "model.4.weight"),
        ("unlike the others", "stands_out", "model.5.weight"),
        ("second moment", "second_moment", "optimizer.state.0.exp_avg_sq"),
        ("no variance", "variance", "model.6.running_var"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(model, tmp_path, fault, kind, name):
    torch.save(planted(model, fault), tmp_path / "state.pt")
    found = stabexp.health(tmp_path / "state.pt")
    assert [(ailment.kind, ailment.name) for ailment in found.ailments] == [(kind, name)]


def test_a_sound_file_of_torch_or_safetensors_is_healthy(model, tmp_path, stabexp_command):
    torch.save(planted(model, ""), tmp_path / "state.pt")
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    for file in ("state.pt", "model.safetensors"):
        done = stabexp_command("health", tmp_path / file)
        assert (done.code, "healthy" in done.out) == (0, True), done.out


@pytest.mark.parametrize("content", ["model", "text"])
def test_what_torch_cannot_read_safely_is_refused(model, tmp_path, content):
    file = tmp_path / "thing.pt"
    torch.save(model, file) if content == "model" else file.write_text("hello")
    with pytest.raises(CheckpointError, match=r"thing\.pt"):
        stabexp.health(file)


def test_weights_that_blew_up_in_one_update_are_all_named(root, no_uploader_left, stabexp_command):
    done = stabexp_command("health", "bad", "--root", root, "--json")
    assert done.code == 6
    found = json.loads(done.out)
    large = {ailment["name"] for ailment in found["ailments"] if ailment["kind"] == "extreme"}
    assert {tensor["name"] for tensor in found["tensors"] if tensor["part"] == "parameter"} <= large


def test_a_run_that_learned_is_healthy_at_each_of_its_checkpoints(
    root, no_uploader_left, stabexp_command
):
    for step in (0, 20, 40):
        done = stabexp_command("health", "good", "--root", root, "--step", step)
        assert done.code == 0, done.out
        assert f"before step {step}: healthy" in done.out
    assert "×" in done.out.split("since first")[1]


def test_an_unknown_name_or_step_is_an_error_that_says_what_there_is(root, no_uploader_left):
    with pytest.raises(RunNotFoundError, match="nor a checkpoint file"):
        stabexp.health("nothing", root=root)
    with pytest.raises(CheckpointError, match="there are those of steps: 0, 20, 40"):
        stabexp.health("good", root=root, step=7)
