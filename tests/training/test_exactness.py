"""A fork in a new process goes on as the run did, bit for bit, over a grid of configurations."""

from __future__ import annotations

import dataclasses
import runpy
from pathlib import Path

import pytest

from stabexp.bisection.replay import COMPARED, first_mismatch
from stabexp.records import StepRecord, from_json
from stabexp.state import CheckpointStore
from stabexp.training import Fork, Run, execute

_GRID = Path(__file__).parents[2] / "experiments" / "exactness.py"
CASES = sorted(runpy.run_path(str(_GRID))["CASES"])


@pytest.fixture(scope="module")
def outcomes(exactness, tmp_path_factory):
    """Name → (outcome of the straight run, outcome of the fork in a new process)."""
    root = tmp_path_factory.mktemp("grid")
    directories = {name: root / str(index) for index, name in enumerate(CASES)}
    whole = {name: exactness.straight(name, path) for name, path in directories.items()}
    part = exactness.in_new_process(directories)
    return {name: (whole[name], part[name]) for name in CASES}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_new_process_continues_bit_for_bit(exactness, outcomes, name):
    whole, part = outcomes[name]
    at = exactness.CASES[name][0]
    assert [record["step"] for record in whole["records"]] == list(range(exactness.STEPS))
    assert [record["step"] for record in part["records"]] == list(range(at, exactness.STEPS))
    assert exactness.difference(whole, part) == ""


@pytest.mark.slow
def test_the_scaled_runs_of_the_grid_do_overflow(outcomes):
    whole, _ = outcomes["own loop, scale grows until it overflows"]
    skipped = [record["step"] for record in whole["records"] if record.get("skipped")]
    assert len(skipped) >= 2
    assert skipped[-1] > 7


@pytest.mark.parametrize(
    "left_out", ["nothing", "model", "optimizer", "scheduler", "scaler", "position", "streams"]
)
def test_leaving_one_part_of_the_state_out_shows(exactness, tmp_path, left_out):
    """The comparison can fail: a part as it was at step 0 is what a loop has that forgot it."""
    name = "own loop, scale grows until it overflows"
    whole = exactness.straight(name, tmp_path / "whole")
    at = exactness.CASES[name][0]
    damaged = _without(left_out, tmp_path / "whole", tmp_path / "damaged", at)
    made = exactness.case_program(name)
    records: list[StepRecord] = []
    execute(
        made, Run(made.settings, on_step=records.append, fork=Fork(checkpoints=damaged, step=at))
    )
    original = [from_json(StepRecord, {**values, "time": 0.0}) for values in whole["records"]]
    step, field = first_mismatch(original, records)
    if left_out == "nothing":
        assert (step, field) == (None, "")
    else:
        assert step is not None
        assert step <= at + 2
        assert field in COMPARED


def _without(part: str, source: Path, target: Path, at: int) -> Path:
    store = CheckpointStore.reader(source)
    snapshot, fresh = store.load(at), store.load(0)
    if part in snapshot.objects:
        objects = {**snapshot.objects, part: fresh.objects[part]}
        snapshot = dataclasses.replace(snapshot, objects=objects)
    elif part == "position":
        snapshot = dataclasses.replace(snapshot, extra={**snapshot.extra, "position": 0})
    elif part == "streams":
        snapshot = dataclasses.replace(snapshot, streams=fresh.streams)
    with CheckpointStore(target) as store:
        store.save(at, snapshot, finite=True)
    return target
