"""What was running resumes, and ends bit for bit as if it had never been interrupted."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
from pathlib import Path

import pytest

from stabexp import api
from stabexp.errors import BusyError, CheckpointError, StabexpError
from stabexp.state.checkpoints import CheckpointStore
from stabexp.tracking import RunDirectory
from stabexp.tracking.shipping import pending, ship
from stabexp.tracking.store import MemoryStore


def course(directory: Path) -> list[dict]:
    """The step records without what a clock says."""
    records = [dataclasses.asdict(r) for r in RunDirectory.open(directory).read_steps()]
    for record in records:
        del record["time"], record["seconds"]
    return [json.loads(json.dumps(record)) for record in records]


def states(directory: Path) -> dict[int, str]:
    """Hash of the whole state by step."""
    return {
        info.step: info.state_hash
        for info in CheckpointStore.reader(directory / "checkpoints").infos()
    }


class Died(BaseException):
    """Stands for whatever ends a process; no part of the training code catches it."""


def dying_at(step: int):
    def on_step(record):
        if record.step == step:
            raise Died

    return on_step


def died(file: Path, root: Path, *, step: int) -> Path:
    """The directory of a run that got as far as recording `step`."""
    with pytest.raises(Died):
        api.run(file, root=root, on_step=dying_at(step), drain_seconds=0)
    (directory,) = (root / "runs").iterdir()
    return directory


@pytest.fixture
def uninterrupted(own_loop, tmp_path) -> Path:
    return api.run(own_loop, root=tmp_path / "whole", drain_seconds=0).directory


@pytest.mark.slow
def test_a_training_killed_at_random_moments_ends_as_if_it_had_not_been(
    start, cli, own_loop, uninterrupted, wait_for
):
    slow = ["-o", "train.args.pause=0.02"]
    rng = random.Random(11)
    process = start("run", own_loop, *slow, "--root", "broken")
    runs = Path("broken", "runs")
    wait_for(lambda: list(runs.glob("*/steps.jsonl")))
    (directory,) = runs.iterdir()
    for goal in (rng.randint(3, 20), rng.randint(21, 45)):
        wait_for(lambda goal=goal: len(lines(directory)) > goal)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process = start("run", "--resume", directory.name, "--root", "broken")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert course(directory) == course(uninterrupted)
    assert states(directory) == states(uninterrupted)


def lines(directory: Path) -> list[str]:
    return (directory / "steps.jsonl").read_text("utf-8").splitlines()


def test_what_an_earlier_life_recorded_after_the_point_of_resumption_is_void(own_loop, tmp_path):
    directory = died(own_loop, tmp_path / "root", step=33)
    assert [r["step"] for r in course(directory)] == list(range(34))
    with pytest.raises(Died):
        api.resume(directory.name, root=tmp_path / "root", on_step=dying_at(30), drain_seconds=0)
    # It went on from step 28 and died at 30; 31 to 33 have not happened in this life.
    assert [r["step"] for r in course(directory)] == list(range(31))


def test_what_is_sent_to_mlflow_goes_on_across_the_point_of_resumption(own_loop, tmp_path):
    directory = died(own_loop, tmp_path / "root", step=33)
    store = MemoryStore()
    ship(directory, store)
    api.resume(directory.name, root=tmp_path / "root", drain_seconds=0)
    ship(directory, store)
    (run,) = store.runs.values()
    losses = {row.step: row.value for row in run.metrics if row.key == "loss"}
    assert losses == {r["step"]: r["loss"] for r in course(directory)}
    assert pending(directory, store.uri) == 0


def test_a_resumed_run_may_be_interrupted_before_its_first_step(own_loop, tmp_path, uninterrupted):
    directory = died(own_loop, tmp_path / "root", step=10)
    for _ in range(2):
        with pytest.raises(Died):
            api.resume(
                directory.name,
                root=tmp_path / "root",
                on_start=_die,
                drain_seconds=0,
            )
    api.resume(directory.name, root=tmp_path / "root", drain_seconds=0)
    assert course(directory) == course(uninterrupted)


def _die(directory, experiment):
    raise Died


def test_a_run_killed_in_the_moment_of_its_divergence_still_diverges_there(diverged):
    found = (diverged / "divergence.json").read_text("utf-8")
    before = course(diverged)
    (diverged / "divergence.json").unlink()
    RunDirectory.open(diverged).finish("KILLED")
    result = api.resume(diverged.name, root=diverged.parents[1], drain_seconds=0)
    assert result.status == "diverged"
    assert (diverged / "divergence.json").read_text("utf-8") == found
    assert course(diverged) == before


def test_a_damaged_newest_checkpoint_costs_only_the_steps_since_the_one_before(
    own_loop, tmp_path, uninterrupted
):
    directory = died(own_loop, tmp_path / "root", step=33)
    cut_in_half(directory / "checkpoints" / "step-00000028.pt")
    result = api.resume(directory.name, root=tmp_path / "root", drain_seconds=0)
    assert result.notices == ("the checkpoint of step 28 is damaged; went on from that of step 21",)
    assert course(directory) == course(uninterrupted)
    assert states(directory) == states(uninterrupted)


def cut_in_half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def test_without_any_checkpoint_it_says_so_and_loses_nothing(cli, own_loop, tmp_path):
    directory = died(own_loop, tmp_path / "root", step=33)
    before = course(directory)
    for file in (directory / "checkpoints").glob("*.pt"):
        file.unlink()
    done = cli("run", "--resume", directory.name, "--root", "root")
    assert done.returncode == 1
    assert "none of the run's 4 checkpoints up to step 33 can be used" in done.stderr
    assert course(directory) == before
    with pytest.raises(CheckpointError):
        api.resume(directory.name, root=tmp_path / "root", drain_seconds=0)


def test_a_run_that_died_before_its_first_checkpoint_starts_again(
    own_loop, tmp_path, uninterrupted
):
    directory = died(own_loop, tmp_path / "root", step=3)
    for file in (directory / "checkpoints").iterdir():
        file.unlink()
    api.resume(directory.name, root=tmp_path / "root", drain_seconds=0)
    assert course(directory) == course(uninterrupted)


def test_a_run_that_ended_by_itself_is_not_resumed(diverged, uninterrupted):
    for directory in (diverged, uninterrupted):
        with pytest.raises(StabexpError, match="has ended by itself"):
            api.resume(directory.name, root=directory.parents[1], drain_seconds=0)


def test_a_run_that_is_still_running_is_not_resumed(own_loop, tmp_path):
    seen = []

    def try_it(directory, experiment):
        with pytest.raises(BusyError, match=f"process {os.getpid()} is working on it") as refused:
            api.resume(directory.run_id, root=tmp_path / "root", drain_seconds=0)
        seen.append(refused)

    result = api.run(own_loop, root=tmp_path / "root", on_start=try_it, drain_seconds=0)
    assert seen
    assert result.status == "finished"
    assert result.steps == 60
