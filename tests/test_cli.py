"""Every command: arguments → one API call → printed result → exit code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command_line import NOWHERE

import stabexp
from stabexp import api
from stabexp.tracking.upload_state import Upload, write_upload

EXPERIMENT = """\
name: late
seed: 0
steps: 60
threads: 1
task: mlp
optimizer: {name: sgd, lr: 8.0}
schedule: {name: constant, warmup_steps: 50}
checkpoint: {every: 5}
"""

pytestmark = pytest.mark.usefixtures("no_uploader_left")


@pytest.fixture(scope="module")
def before(tmp_path_factory) -> Path:
    """A root with one run that diverged, at step 15."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "late.yaml").write_text(EXPERIMENT, "utf-8")
    options = [f"tracking.uri={NOWHERE}"]
    api.run(folder / "late.yaml", options, root=folder / "root", drain_seconds=0)
    return folder / "root"


@pytest.fixture(scope="module")
def after(before, tmp_path_factory) -> Path:
    """The same root after a bisect of two variables."""
    root = tmp_path_factory.mktemp("after") / "root"
    shutil.copytree(before, root)
    variables = ["learning_rate", "precision"]
    api.bisect("late", root=root, variables=variables, workers=0, drain_seconds=0)
    return root


@pytest.fixture
def elsewhere(before, tmp_path) -> Path:
    """A copy that a test may change, in the working directory."""
    shutil.copytree(before, tmp_path / "elsewhere")
    return Path("elsewhere")


def only_run(root: Path) -> Path:
    (directory,) = (root / "runs").iterdir()
    return directory


def test_run_says_what_became_of_it_and_what_to_type_next(stabexp_command, tmp_path):
    (tmp_path / "exp.yaml").write_text(EXPERIMENT, "utf-8")
    done = stabexp_command("run", "exp.yaml")
    run_id = only_run(tmp_path / "stabexp_runs").name
    assert done.code == 3
    assert done.out.startswith(f"{run_id}: DIVERGED at step 15 (onset 13, exponential growth)")
    assert done.out.endswith(f"find out why: stabexp bisect {run_id}\n")
    assert f"run {run_id}" in done.errors


def test_run_prints_one_json_object(stabexp_command, tmp_path):
    (tmp_path / "exp.yaml").write_text(EXPERIMENT, "utf-8")
    done = stabexp_command(
        "run", "exp.yaml", "-o", "optimizer.lr=0.01", "-o", "steps=52", "--json", "-q"
    )
    assert done.code == 0
    facts = json.loads(done.out)
    assert facts["status"] == "finished"
    assert facts["steps"] == 52
    assert facts["divergence"] is None
    assert facts["delivered"] is False
    assert Path(facts["directory"]).name == facts["run_id"]
    assert done.errors == ""


def test_log_before_a_bisect_says_how_to_begin_one(stabexp_command, before):
    done = stabexp_command("log", "late", "--root", before)
    assert done.code == 0
    assert "diverged at step 15" in done.out
    assert f"has not begun: stabexp bisect --root {before} {only_run(before).name}" in done.out


def test_log_after_a_bisect_shows_verdict_and_trials(stabexp_command, after):
    done = stabexp_command("log", "late", "--root", after)
    assert done.code == 0
    assert "learning rate" in done.out
    assert "control" in done.out
    facts = json.loads(stabexp_command("log", "late", "--root", after, "--json").out)
    assert facts["verdict"]["cause"] == "learning_rate"
    assert facts["divergence"]["detected"] == 15
    assert [trial["number"] for trial in facts["trials"]] == list(range(len(facts["trials"])))


def test_a_bisect_that_is_done_answers_at_once_and_again(stabexp_command, after):
    command = ["bisect", "late", "--root", after, "--variables", "learning_rate,precision"]
    shown = stabexp_command(*command)
    assert shown.code == 0
    assert f"see it: stabexp ui --root {after} {only_run(after).name}" in shown.out
    assert "placebos" not in shown.errors
    assert json.loads(stabexp_command(*command, "--json").out)["cause"] == "learning_rate"


def test_only_what_can_be_the_cause_is_changed(after):
    # An fp32 run is not asked about its number format, though the user would allow it.
    trials = api.load("late", root=after).trial_records
    doses = {trial.spec.variable for trial in trials if trial.spec.role == "dose"}
    assert doses == {"learning_rate"}
    (control,) = [trial for trial in trials if trial.spec.role == "control"]
    assert control.findings["rules"] == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--variables", "learning_rat"], "did you mean 'learning_rate'?"),
        (["--budget", "1 week"], "expected steps to replay or a time"),
        (["--budget", "0"], "allows no replay at all"),
    ],
)
def test_a_wish_that_cannot_be_fulfilled_is_refused_before_anything_is_replayed(
    stabexp_command, before, options, says
):
    done = stabexp_command("bisect", "late", "--root", before, *options)
    assert done.code == 2
    assert says in " ".join(done.errors.split())
    assert api.load("late", root=before).trial_records == ()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--good", "7"], "--good 7: no checkpoint of that step is kept; the nearest are 5 and 10"),
        (["--bad", "900"], "--bad 900: not a recorded step"),
        (["--skip", "0-900"], "--skip leaves nothing to start from"),
    ],
)
def test_a_start_that_is_not_there_is_named(stabexp_command, elsewhere, options, says):
    done = stabexp_command("bisect", "late", "--root", elsewhere, "--workers", "0", *options)
    assert done.code == 2
    assert says in " ".join(done.errors.split())


def test_a_run_that_diverged_is_bisected_and_not_checked(stabexp_command, before):
    done = stabexp_command("check", "late", "--root", before)
    assert done.code == 1
    assert f"stabexp bisect {only_run(before).name}" in " ".join(done.errors.split())


def test_a_replay_by_hand_is_one_line_and_is_kept_as_a_trial(stabexp_command, elsewhere):
    command = ["replay", "late", "--root", elsewhere, "--set", "optimizer.lr=0.08", "--steps", "3"]
    done = stabexp_command(*command)
    assert done.code == 0, done.errors
    assert "learning_rate ×0.01" in done.out
    (trial,) = api.load("late", root=elsewhere).trial_records
    assert (trial.spec.role, trial.steps) == ("manual", 3)
    wrong = stabexp_command(*command[:4], "--set", "optimizer.learning=1")
    assert wrong.code == 2
    assert "unknown key" in wrong.errors


@pytest.mark.slow
def test_a_budget_that_is_too_small_ends_without_a_verdict_but_with_what_is_known(
    stabexp_command, elsewhere
):
    command = ["bisect", "late", "--root", elsewhere, "--variables", "learning_rate"]
    done = stabexp_command(*command, "--budget", "1", "--workers", "0")
    assert done.code == 4
    assert "the budget of 1 steps is spent" in " ".join(done.errors.split())
    assert "control" in done.out


def test_a_run_is_known_by_its_id_its_beginning_and_its_mlflow_id(stabexp_command, elsewhere):
    directory = only_run(elsewhere)
    write_upload(directory, NOWHERE, Upload(store_id="0123abcd", experiment_id="1"))
    outputs = {
        stabexp_command("log", name, "--root", elsewhere).out
        for name in (directory.name, directory.name[:6], "0123abcd")
    }
    (out,) = outputs
    assert directory.name in out


def test_list_shows_runs_and_names(stabexp_command, after, tmp_path):
    runs = stabexp_command("list", "--root", after).out
    assert only_run(after).name in runs
    assert "diverged at step 15 · learning_rate" in runs
    none = stabexp_command("list", "--root", tmp_path).out
    assert "make one: stabexp run exp.yaml" in " ".join(none.split())
    assert "gradient_explosion: " in stabexp_command("list", "detectors").out


def test_schema_and_version(stabexp_command):
    assert json.loads(stabexp_command("schema").out)["title"] == "stabexp experiment"
    assert stabexp_command("version").out == f"{stabexp.__version__}\n"


def test_a_root_that_cannot_be_written_to_is_named(stabexp_command, tmp_path):
    (tmp_path / "exp.yaml").write_text(EXPERIMENT, "utf-8")
    (tmp_path / "file").touch()
    done = stabexp_command("run", "exp.yaml", "--root", "file")
    assert done.code == 1
    assert str(tmp_path / "file") in done.errors


def test_an_error_of_the_system_is_one_message(stabexp_command, after, tmp_path):
    shutil.copytree(after, tmp_path / "root")
    file = only_run(tmp_path / "root") / "experiment.yaml"
    file.unlink()
    file.mkdir()
    done = stabexp_command("log", "late", "--root", "root")
    assert done.code == 1
    assert done.errors.startswith("error: ")
    assert "experiment.yaml: Is a directory; check that place" in " ".join(done.errors.split())
