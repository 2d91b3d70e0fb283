"""The example trainings, as `stabexp run` and `stabexp bisect` see them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from integrations.examples import breaks_no_rule, is_bisected_to
from integrations.lightning.worlds import THIRD_PARTY

from stabexp import api
from stabexp.records import RunResult
from stabexp.state import CheckpointStore
from stabexp.tracking import RunDirectory

pytestmark = [THIRD_PARTY, pytest.mark.usefixtures("nowhere", "no_uploader_left")]

KINDS = ("auto", "manual")


def run(kind: str, root: Path, **options: Any) -> RunResult:
    arguments = options.pop("args", {})
    return api.run(
        f"experiments.trainers.lightning_{kind}:train",
        root=root,
        drain_seconds=0,
        checkpoint={"every": 10},
        threads=1,
        args=arguments,
        **options,
    )


class Died(BaseException):
    """Stands for whatever ends a process; no part of the training code catches it."""


def dying_at(step: int) -> Any:
    def on_step(record: Any) -> None:
        if record.step == step:
            raise Died

    return on_step


def course(directory: Path) -> list[dict[str, Any]]:
    """The step records without what a clock says."""
    records = RunDirectory.open(directory).read_steps()
    return [
        {
            key: repr(value)
            for key, value in dataclasses.asdict(record).items()
            if key not in ("time", "seconds")
        }
        for record in records
    ]


def states(directory: Path) -> dict[int, str]:
    infos = CheckpointStore.reader(directory / "checkpoints").infos()
    return {info.step: info.state_hash for info in infos}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "step"), [("auto", 75), ("manual", 25)])
def test_a_killed_training_goes_on_as_if_it_had_not_been(kind, step, tmp_path):
    whole = run(kind, tmp_path / "whole", args={"epochs": 2}).directory
    root = tmp_path / "broken"
    with pytest.raises(Died):
        run(kind, root, args={"epochs": 2}, on_step=dying_at(step))
    (directory,) = (root / "runs").iterdir()
    assert len(course(directory)) == step + 1
    api.resume(directory.name, root=root, drain_seconds=0)
    assert len(course(directory)) == 114
    assert course(directory) == course(whole)
    assert states(directory)[110] == states(whole)[110]


@pytest.mark.parametrize("kind", KINDS)
def test_a_healthy_training_breaks_no_rule(kind, tmp_path):
    breaks_no_rule(run(kind, tmp_path, args={"epochs": 2}), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "fault", "cause"),
    # All eight: python -m experiments.trainers.verify lightning_auto lightning_manual
    [("auto", "clip", "clip_norm"), ("manual", "bad_sample", "data")],
)
def test_names_the_fault(kind, fault, cause, tmp_path):
    is_bisected_to(cause, run(kind, tmp_path, args={"fault": fault}), tmp_path)
