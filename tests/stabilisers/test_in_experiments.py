"""Stabilisers from an experiment file and from Python, and what they do to the host."""

from __future__ import annotations

import pytest
import torch
from command_line import NOWHERE
from stabilisers.stabilised import STEPS, foreign
from stabilisers.test_contract import ARGUMENTS
from torch.utils._python_dispatch import TorchDispatchMode

import stabexp
from stabexp.errors import ConfigError
from stabexp.schema import catalogue
from stabexp.stabilisers import STABILISERS
from stabexp.tracking import RunDirectory

DEMO = """
name: bursts
steps: 60
threads: 1
task: {name: weighted_mlp, args: {heavy_share: 0.01, heavy_weight: 100}}
optimizer: {name: sgd, lr: 0.05, momentum: 0.9}
schedule: {name: constant, warmup_steps: 20}
stabilisers:
  adaptive_clip: {kind: z_score, warmup: 5}
  skip_nonfinite:
"""


def test_an_experiment_file_names_them_and_what_they_did_is_recorded(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOWHERE)
    (tmp_path / "exp.yaml").write_text(DEMO)
    result = stabexp.run("exp.yaml", ["steps=30"], root="out", drain_seconds=0)
    assert result.divergence is None
    metrics = RunDirectory.open(tmp_path / "out/runs" / result.run_id).read_steps()[-1].metrics
    assert metrics["adaptive_clip/limit"] > 0
    assert metrics["skip_nonfinite/skipped"] == 0


def test_a_wrong_argument_is_told_with_its_line(tmp_path):
    (tmp_path / "exp.yaml").write_text(DEMO.replace("kind: z_score", "kind: zscore"))
    with pytest.raises(
        ConfigError, match=r"exp.yaml:9: stabilisers\.adaptive_clip\.kind: expected"
    ):
        stabexp.run("exp.yaml", root="out")


def test_the_list_names_every_stabiliser_with_its_figures():
    lines = list(catalogue("stabilisers"))
    assert {line.partition(":")[0] for line in lines if not line.startswith(" ")} == set(
        STABILISERS
    )
    assert any("growth_window (default 2000): " in line for line in lines)
    assert any("limit (default 100.0): " in line for line in lines)


class HostSyncs(TorchDispatchMode):
    """Counts how often a number is brought to the host."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def host_syncs(loop, stabilisers):
    with HostSyncs() as syncs:
        foreign(loop, stabilisers)
    return syncs.count


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.parametrize("name", STABILISERS)
def test_no_number_is_brought_to_the_host_but_by_skip_nonfinite(name):
    """One for each update and optimizer there."""
    for loop, optimizers in (("own order", 1), ("two optimizers", 2)):
        usual = host_syncs(loop, {})
        found = host_syncs(loop, {name: ARGUMENTS.get(name, {})})
        more = found - usual
        # What is frozen is not stepped: a plain Adam reads a counter for each parameter.
        assert more == STEPS * optimizers if name == "skip_nonfinite" else more <= 0
