"""What goes wrong on the way is said in one message, costs what it must and nothing more."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from stabexp import api
from stabexp.bisection.replay import Origin, survey
from stabexp.errors import CheckpointError
from stabexp.experiment import open_source, program
from stabexp.tracking import RunDirectory


def cut_in_half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def checkpoint(directory: Path, step: int) -> Path:
    return directory / "checkpoints" / f"step-{step:08d}.pt"


def surveyed(directory: Path):
    loaded = api.load(directory.name, root=directory.parents[1])
    origin = Origin(directory=directory, records=loaded.records, divergence=loaded.divergence)
    experiment, base = open_source(json.loads((directory / "source.json").read_text("utf-8")))
    return survey(origin, program(experiment, base=base))


# --- checkpoints -------------------------------------------------------------------------------


def test_an_undamaged_run_needs_no_warning(diverged):
    found = surveyed(diverged)
    assert found.good_step == 10
    assert found.from_scratch
    assert found.warnings == ()


@pytest.mark.slow
def test_of_a_checkpoint_cut_in_half_the_one_before_is_used_and_the_bisect_says_so(cli, diverged):
    cut_in_half(checkpoint(diverged, 10))
    command = ["bisect", "late", "--root", "root", "--workers", "0", "--json"]
    done = cli(*command, "--variables", "learning_rate")
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["cause"] == "learning_rate"
    assert verdict["good_step"] == 5
    assert "step-00000010.pt: torn: " in done.stderr


@pytest.mark.slow
def test_without_the_checkpoint_of_step_0_the_rest_is_tried(cli, diverged):
    checkpoint(diverged, 0).unlink()
    command = ["bisect", "late", "--root", "root", "--workers", "0", "--json"]
    done = cli(*command, "--variables", "warmup,learning_rate")
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["cause"] == "learning_rate"
    assert verdict["fix_proved"]
    why = {out["variable"]: out["why"] for out in verdict["ruled_out"]}
    assert why["warmup"] == "the run has a ramp of 50 steps"


def test_without_any_checkpoint_there_is_no_bisect(cli, diverged):
    for file in (diverged / "checkpoints").glob("*.pt"):
        cut_in_half(file)
    done = cli("bisect", "late", "--root", "root")
    assert done.returncode == 1
    assert "no usable checkpoint before the onset at step 13" in done.stderr
    assert "step-00000000.pt: torn" in done.stderr
    shutil.rmtree(diverged / "checkpoints")
    with pytest.raises(CheckpointError, match="no usable checkpoint before the onset"):
        surveyed(diverged)


def test_another_machine_is_named(diverged):
    facts = json.loads((diverged / "fingerprint.json").read_text("utf-8"))
    facts |= {"torch": "2.0.0", "threads": "8"}
    (diverged / "fingerprint.json").write_text(json.dumps(facts), "utf-8")
    threads, torch = surveyed(diverged).warnings
    assert "threads differs: 8 and 1 (sums are split over the threads" in threads
    assert "torch differs: 2.0.0 and " in torch


# --- MLflow ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_server_that_is_down_stops_nothing_and_gets_everything_later(
    cli, write, tmp_path, nowhere, recorded, end_uploaders
):
    shutil.copy(recorded.parent / "late.yaml", tmp_path / "exp.yaml")
    started = time.monotonic()
    done = cli("run", "exp.yaml")
    assert done.returncode == 3
    assert time.monotonic() - started < 60
    (directory,) = (tmp_path / "stabexp_runs" / "runs").iterdir()
    assert f"{nowhere} has not received everything" in done.stderr
    assert f"stabexp sync {directory.name}" in done.stderr
    end_uploaders(tmp_path)  # as when the machine is switched off

    with Server(nowhere, tmp_path):
        assert cli("sync", directory.name).stdout.endswith("everything has arrived\n")
        query = {"experiment_ids": ["1"], "max_results": 10}
        (run,) = post(f"{nowhere}/api/2.0/mlflow/runs/search", query)["runs"]
    assert run["info"]["status"] == "FAILED"
    metrics = {metric["key"]: metric for metric in run["data"]["metrics"]}
    assert int(metrics["loss"]["step"]) == 15
    assert int(metrics["loss"]["step"]) == RunDirectory.open(directory).read_steps()[-1].step


class Server:
    """A real MLflow server at an address."""

    def __init__(self, address: str, home: Path) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"]
        command += ["--port", address.rpartition(":")[2], "--workers", "1"]
        command += ["--backend-store-uri", f"sqlite:///{home}/server.db"]
        command += ["--artifacts-destination", str(home / "server-artifacts")]
        environment = os.environ | {
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_MODEL_CATALOG_URI": "",
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }
        self.address = address
        with (home / "server.log").open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def __enter__(self) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"{self.address}/health", timeout=1):
                    return
            except OSError:
                time.sleep(0.2)
        raise TimeoutError(self.address)

    def __exit__(self, *error: object) -> None:
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(30)


def post(address: str, body: dict) -> dict:
    request = urllib.request.Request(
        address, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


# --- a full disk -------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of 96 kB, and a function that makes it larger; None without the right."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        yield None
        return
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.slow
def test_a_full_disk_ends_the_run_with_a_word_and_it_goes_on_when_there_is_room(
    cli, own_loop, tmp_path, small_disk, end_uploaders
):
    root = small_disk or tmp_path / "disk"
    limit = None if small_disk else lower_the_file_size
    done = cli("run", own_loop, "--root", root, preexec_fn=limit)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "cannot be written: " in done.stderr
    assert "stabexp run --root" in done.stderr
    (directory,) = (root / "runs").iterdir()
    end_uploaders(tmp_path)
    recorded = RunDirectory.open(directory).read_steps()
    assert [record.step for record in recorded] == list(range(len(recorded)))
    assert len(recorded) < 60

    if small_disk:
        more = ["mount", "-o", "remount,size=50m", str(small_disk)]
        subprocess.run(more, check=True, capture_output=True)
    again = cli("run", "--resume", directory.name, "--root", root)
    assert again.returncode == 0, again.stderr
    whole = api.run(own_loop, root=tmp_path / "whole", drain_seconds=0)
    assert digests(directory) == digests(whole.directory)


def lower_the_file_size() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 10, 16 << 10))


def digests(directory: Path) -> list[str]:
    return [record.digest for record in RunDirectory.open(directory).read_steps()]


def test_a_disk_too_full_for_checkpoints_does_not_end_a_healthy_training(cli, own_loop, tmp_path):
    done = cli(
        "run",
        own_loop,
        "-o",
        "train.args.lr=0.01",
        "-o",
        "steps=8",
        "--root",
        "root",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000)),
    )
    assert done.returncode == 0, done.stderr
    assert "warning: a checkpoint could not be written: " in done.stderr


# --- Ctrl-C, and being killed ------------------------------------------------------------------


@pytest.mark.slow
def test_ctrl_c_while_training_says_how_to_go_on_and_leaves_no_run_open_in_mlflow(
    start, own_loop, wait_for
):
    process = start(
        "run",
        own_loop,
        "-o",
        "train.args.pause=0.05",
        "--root",
        "root",
        "-o",
        "tracking.uri=sqlite:///mlflow.db",
    )
    wait_for(lambda: list(Path("root", "runs").glob("*/steps.jsonl")))
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    (directory,) = Path("root", "runs").iterdir()
    assert f"stabexp run --root root --resume {directory.name}" in errors
    assert RunDirectory.open(directory).status() == "KILLED"
    wait_for(lambda: statuses() == ["KILLED"])


def statuses() -> list[str]:
    try:
        with sqlite3.connect("file:mlflow.db?mode=ro", uri=True) as store:
            return [status for (status,) in store.execute("select status from runs")]
    except sqlite3.OperationalError:
        return []


@pytest.mark.slow
def test_ctrl_c_while_bisecting_ends_the_workers_and_the_same_command_goes_on(
    start, cli, diverged, wait_for, processes
):
    # With all variables there is still work left when everything else here has been asked.
    command = ["bisect", "late", "--root", "root", "--thorough"]
    process = start(*command)
    trials = diverged / "bisects" / "bisect-1" / "trials"
    wait_for(lambda: list(trials.glob("*/trial.json")))

    busy = cli(*command)
    assert busy.returncode == 1
    assert f"process {process.pid} is working on it" in busy.stderr
    during = cli("log", "late", "--root", "root")
    assert "control" in during.stdout
    assert "the bisect is not finished: stabexp bisect --root root late" in during.stdout

    workers = processes(f"stabexp.bisection.workers {process.pid}")
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert workers
    assert not processes(f"stabexp.bisection.workers {process.pid}")
    assert "Traceback" not in errors
    assert "the same command goes on from there" in errors
    finished = {file: file.read_bytes() for file in trials.glob("*/trial.json")}

    again = cli(*command)
    assert again.returncode == 0, again.stderr
    assert "(finished earlier)" in again.stderr
    assert all(file.read_bytes() == content for file, content in finished.items())
    states = [child.status() for child in RunDirectory.open(trials.parent).children()]
    assert "RUNNING" not in states


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_of_a_trial_costs_that_trial_a_second_try(
    start, cli, diverged, wait_for, processes
):
    """As the kernel does when memory runs out."""
    process = start("bisect", "late", "--root", "root", "--variables", "learning_rate", "--json")
    trials = diverged / "bisects" / "bisect-1" / "trials"
    wait_for(lambda: list(trials.glob("*/run.json")))
    victims = processes(f"stabexp.bisection.workers {process.pid}")
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    out, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    assert "it is tried once more" in errors
    assert json.loads(out)["cause"] == "learning_rate"
    killed = [c for c in RunDirectory.open(trials.parent).children() if c.status() == "KILLED"]
    assert killed
    assert "inconclusive" not in cli("log", "late", "--root", "root").stdout


# --- a training function of one's own ----------------------------------------------------------


@pytest.mark.slow
def test_a_training_function_of_ones_own_is_bisected_and_its_fix_runs(cli, own_loop, tmp_path):
    options = ["train.args.lr=1.0"]
    root = tmp_path / "root"
    run = api.run(own_loop, options, root=root, drain_seconds=0)
    assert run.status == "diverged"
    chosen = ["--variables", "learning_rate,precision"]
    done = cli("bisect", run.run_id, "--root", root, *chosen, "--json")
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["cause"] == "learning_rate"
    assert verdict["fix_proved"]
    ((key, value),) = verdict["fix"].items()
    assert key == "interventions.learning_rate"
    fixed = api.run(own_loop, [*options, f"{key}={value}"], root=root, drain_seconds=0)
    assert fixed.status == "finished"
