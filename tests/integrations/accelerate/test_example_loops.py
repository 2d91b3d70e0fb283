"""The example loops, plain and with Accelerate, as `stabexp run` and `stabexp bisect` see them."""

from __future__ import annotations

import functools
import importlib

import pytest
from accelerate.state import AcceleratorState, GradientState
from command_line import NOWHERE
from integrations.examples import breaks_no_rule, is_bisected_to

from stabexp import api
from stabexp.training import Program, Run, RunSettings, execute

pytestmark = pytest.mark.usefixtures("no_uploader_left")

KINDS = ("plain_loop", "accelerate_loop")
FAULTS = ("lr", "fp16", "bad_sample", "clip")


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOWHERE)
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


@pytest.mark.parametrize("fault", [None, *FAULTS])
@pytest.mark.parametrize("kind", KINDS)
def test_only_a_fault_makes_it_diverge(kind, fault):
    module = importlib.import_module(f"experiments.trainers.{kind}")
    settings = RunSettings(name="test", steps=None)
    run = Run(settings)
    train = functools.partial(module.train, fault=fault)
    execute(Program(settings=settings, train=train), run)
    assert (run.divergence is not None) == (fault is not None)
    assert set(module.VERDICTS) == set(FAULTS)
    if fault is None:
        assert run.step > 330
        assert run.last_record.loss < 0.3
        assert run.seen()["accumulate"] == 2
        assert run.seen()["clip_norm"] == 5.0


def ran(kind, root, **options):
    return api.run(
        f"experiments.trainers.{kind}:train",
        root=root,
        drain_seconds=0,
        checkpoint={"every": 20},
        threads=1,
        **options,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_healthy_loop_breaks_no_rule(kind, tmp_path):
    breaks_no_rule(ran(kind, tmp_path, args={"epochs": 2}), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "fault", "cause"),
    # All eight: python -m experiments.trainers.verify plain_loop accelerate_loop
    [("plain_loop", "bad_sample", "data"), ("accelerate_loop", "clip", "clip_norm")],
)
def test_a_bisect_names_the_fault(kind, fault, cause, tmp_path):
    is_bisected_to(cause, ran(kind, tmp_path, args={"fault": fault}), tmp_path)
