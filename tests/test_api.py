"""The Python interface: what it returns, and what it leaves on the disk when training fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from stabexp import api
from stabexp.errors import NotDivergedError, RunNotFoundError, TrainingError
from stabexp.state import CheckpointStore
from stabexp.tracking import RunDirectory

pytestmark = pytest.mark.usefixtures("nowhere", "no_uploader_left")

TRAINING = """\
import sys

import torch


def raises(run):
    for _ in loop(run):
        if run.step == 3:
            raise RuntimeError("out of cheese")


def leaves(run):
    sys.exit(3)


def returns(run):
    pass


def trains(run):
    for _ in loop(run):
        pass


def bursts(run):
    for _ in loop(run, poison=40):
        pass


def loop(run, poison=None):
    data = torch.utils.data.TensorDataset(torch.arange(32.0)[:, None])
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for (x,) in run.steps(data, model=model, optimizer=optimizer):
        loss = ((model(x) - x) ** 2).mean()
        if run.step == poison:
            loss = loss * float("nan")
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        yield
        optimizer.step()
"""


@pytest.fixture
def experiment(tmp_path):
    """Write an experiment with one of the training functions above."""
    (tmp_path / "training.py").write_text(TRAINING, "utf-8")

    def write(function: str) -> Path:
        text = f"name: small\nsteps: 8\nthreads: 1\ntrain: training.py:{function}\n"
        (tmp_path / "exp.yaml").write_text(text + "batch: {size: 8}\n", "utf-8")
        return tmp_path / "exp.yaml"

    return write


@pytest.mark.parametrize(
    ("function", "says", "steps"),
    [
        ("raises", r"training\.py:9: at step 3: RuntimeError: out of cheese", 3),
        ("leaves", r"called sys\.exit\(3\)", 0),  # exit code 3 would say that the run diverged
        ("returns", "returned without making a step", 0),
    ],
)
def test_a_training_function_that_fails_leaves_what_it_recorded(experiment, function, says, steps):
    with pytest.raises(TrainingError, match=says):
        api.run(experiment(function), drain_seconds=0)
    (path,) = Path("stabexp_runs", "runs").iterdir()
    directory = RunDirectory.open(path)
    assert directory.status() == "FAILED"
    assert [record.step for record in directory.read_steps()] == list(range(steps))
    with pytest.raises(NotDivergedError, match="raised an error before any divergence"):
        api.bisect(path.name)


def test_a_mended_training_function_goes_on_where_it_failed(experiment, tmp_path):
    with pytest.raises(TrainingError):
        api.run(experiment("raises"), ["checkpoint.every=2"], drain_seconds=0)
    (tmp_path / "training.py").write_text(TRAINING.replace("== 3", "== 33"), "utf-8")
    (path,) = Path("stabexp_runs", "runs").iterdir()
    steps: list[int] = []
    result = api.resume(path.name, on_step=lambda r: steps.append(r.step), drain_seconds=0)
    assert result.status == "finished"
    assert result.steps == 8
    assert steps == [2, 3, 4, 5, 6, 7]


def test_what_was_recorded_of_a_healthy_run_can_be_loaded(experiment):
    result = api.run(experiment("trains"), drain_seconds=0)
    loaded = api.load(result.run_id)
    assert loaded.directory == result.directory
    assert loaded.experiment.name == "small"
    assert loaded.steps["loss"].tolist() == [record.loss for record in loaded.records]
    assert loaded.trial_records == ()
    assert loaded.verdict is None
    with pytest.raises(NotDivergedError, match="trained to its end without diverging"):
        api.bisect(result.run_id)


def test_a_root_of_its_own_keeps_runs_apart(experiment, tmp_path):
    result = api.run(experiment("trains"), root=tmp_path / "a", drain_seconds=0)
    assert result.directory.parents[1] == tmp_path / "a"
    with pytest.raises(RunNotFoundError, match="holds no runs yet"):
        api.load(result.run_id, root=tmp_path / "b")


def test_a_run_that_did_not_diverge_can_be_checked_and_is_so_once(experiment):
    result = api.run(experiment("trains"), drain_seconds=0)
    found = api.check(result.run_id, drain_seconds=0)
    assert found.cause == "inconclusive"
    assert found.path[0].node == "control"
    assert found.path[0].answer == "yes"
    assert found.summary.startswith("Nothing was found that is wrong")
    trials = api.load(result.run_id).trial_records
    assert {trial.spec.role for trial in trials} == {"control"}
    assert api.check(result.run_id, drain_seconds=0) == found
    assert api.load(result.run_id).trial_records == trials


DIVERGES = TRAINING.replace("lr=1e-4", "lr=0.9")


def test_other_wishes_are_another_bisect(experiment, tmp_path):
    file = experiment("trains")
    (tmp_path / "training.py").write_text(DIVERGES, "utf-8")
    result = api.run(file, ["steps=120", "checkpoint.every=1"], drain_seconds=0)
    assert result.divergence is not None
    wishes = {"workers": 0, "variables": ["learning_rate"], "drain_seconds": 0}
    found = api.bisect(result.run_id, **wishes)
    assert found.trials == len(api.load(result.run_id).trial_records)
    assert found.bisect_id == api.bisect(result.run_id, **wishes).bisect_id
    other = api.bisect(result.run_id, budget=1, **wishes)
    assert other.bisect_id != found.bisect_id
    assert other.trials == 1


def test_a_divergence_leaves_the_last_hundred_losses_and_norms_and_the_state_it_was_seen_in(
    experiment,
):
    file = experiment("trains")
    result = api.run(file, ["steps=60", "train.name=training.py:bursts"], drain_seconds=0)
    found = RunDirectory.open(result.directory)
    kept, records = found.read_json("emergency.json"), found.read_steps()
    assert result.divergence is not None
    assert kept["divergence"]["detected"] == result.divergence.detected == records[-1].step
    assert kept["steps"] == [record.step for record in records][-100:]
    assert [float(value) for value in kept["losses"][:-1]] == [r.loss for r in records][-100:-1]
    assert kept["losses"][-1] == "nan"
    assert len(kept["gradient_norms"]) == len(kept["losses"])
    # Model, optimizer, random streams and data position of the moment itself, beside the good ones.
    saved = [info.step for info in CheckpointStore.reader(found.path / "checkpoints").infos()]
    assert saved[-1] == result.divergence.detected + 1
    assert saved[0] == 0
