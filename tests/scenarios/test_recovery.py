"""Real trainings that crash, and come back."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import stabexp
from experiments.recovery import bench
from stabexp import api
from stabexp.errors import NotDivergedError
from stabexp.tracking import RunDirectory, find_run, list_runs, read_steps
from stabexp.training.forked import fork_step

pytestmark = pytest.mark.usefixtures("no_uploader_left")

STEPS = 220
ROOT = Path(__file__).parents[2]
TASK = """
name: fast
seed: 0
steps: 60
threads: 1
task: mlp
optimizer: {name: sgd, lr: 8.0}
schedule: {name: constant, warmup_steps: 50}
checkpoint: {every: 5, keep: 8}
"""


def crashed(fault, root, *, seed=0, keep=4, **settings):
    root.mkdir(exist_ok=True)
    result = stabexp.run(
        bench.PROGRAM,
        root=root,
        args={"fault": fault, "once": str(root / "struck")},
        **{"seed": seed, "steps": STEPS, "threads": 1, "batch": {"size": 32}, **settings},
        checkpoint={"every": 10, "keep": keep},
        drain_seconds=0.0,
    )
    return result.run_id


def recovered(run_id, root, **options):
    return api.recover(run_id, root=root, without_verdict=True, drain_seconds=0.0, **options)


def digests(run_id, root):
    return [record.digest for record in find_run(run_id, root).read_steps()]


def test_after_a_flipped_bit_the_training_is_exactly_what_it_would_have_been(tmp_path, nowhere):
    clean = crashed("", tmp_path / "clean")
    run_id = crashed("bit_flip_weight", tmp_path / "flip")
    done = recovered(run_id, tmp_path / "flip")
    assert (done.status, done.remedy, done.rollbacks) == ("recovered", "plain_resume", 1)
    assert digests(done.final_run, tmp_path / "flip") == digests(clean, tmp_path / "clean")
    (action,) = done.actions
    assert "its checksum is right, every parameter and buffer is finite" in action.checks[0]
    assert "samples consumed, as recorded" in action.checks[1]
    assert "equal to the records bit for bit" in action.checks[2]
    assert "RECOVERED" in done.summary
    assert recovered(run_id, tmp_path / "flip") == done  # asked again, it is only told


@pytest.mark.parametrize(
    ("fault", "remedy", "key"),
    [
        ("rate_spike", "hold_rate", "stabilisers.danger_window.cap"),
        ("label_burst", "replace_samples", "interventions.replace_samples"),
        ("optimizer_state_lost", "keep_optimizer_state", "interventions.optimizer_state"),
    ],
)
def test_the_remedy_is_that_of_the_fault(fault, remedy, key, tmp_path, nowhere):
    run_id = crashed(fault, tmp_path)
    done = recovered(run_id, tmp_path)
    assert (done.status, done.remedy, done.rollbacks) == ("recovered", remedy, 1), done.summary
    assert key in done.actions[0].settings
    assert done.loss < 0.5  # the noise in the targets is 0.25


def test_a_recovery_that_was_stopped_goes_on_and_its_run_is_a_run_like_any_other(tmp_path, nowhere):
    run_id = crashed("rate_spike", tmp_path)

    def stop(record):
        if record.step == 195:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recovered(run_id, tmp_path, on_step=stop)
    half = find_run(f"{run_id}-recovery-1", tmp_path)
    assert (half.status(), half.read_steps()[-1].step) == ("KILLED", 195)
    done = recovered(run_id[:-1], tmp_path)  # the beginning of its id is still enough
    assert (done.status, done.rollbacks, done.final_run) == ("recovered", 1, half.run_id)

    child = find_run(done.final_run, tmp_path)
    start = done.actions[0].from_step
    assert child.parent is not None
    assert child.parent.run_id == run_id
    assert fork_step(child) == start
    own = digests(run_id, tmp_path)[:start]
    assert digests(child.run_id, tmp_path)[:start] == own  # its parent's records, up to its fork
    rates = [r.lr for r in child.read_steps()[start:]]
    assert max(rates) == rates[0]  # the spike to sixty times the rate was held down
    # A replay of it is exact from its fork on, danger window and all.
    record, _ = api.replay(child.run_id, from_step=start, steps=STEPS - start, root=tmp_path)
    assert record.mismatch is None
    assert record.last_step == STEPS - 1
    with pytest.raises(NotDivergedError, match="it trained to its end; there is nothing"):
        recovered(child.run_id, tmp_path)


def test_given_back_the_rate_is_the_original_one_after_the_window(tmp_path, nowhere):
    file = tmp_path / "fast.yaml"
    file.write_text(TASK)
    run_id = stabexp.run(file, root=tmp_path, drain_seconds=0.0).run_id
    done = recovered(run_id, tmp_path, give_back=True)
    first = done.actions[0]
    assert done.status == "recovered"
    rates = {r.step: r.lr for r in find_run(first.run_id, tmp_path).read_steps()}
    inside, last = first.window[0], max(rates)
    eased = first.settings["stabilisers.danger_window.rate"]
    assert rates[inside] == pytest.approx(eased * 8.0 * (inside + 1) / 50)
    # On the way back to the rate that it had crashed at it crashes, and now keeps the lower one.
    assert rates[last] > 4 * rates[first.window[1] - 1]
    assert first.outcome == "crashed_again"
    assert "interventions.learning_rate" in done.actions[1].settings
    assert "the danger window was passed" in str(find_run(first.run_id, tmp_path).read_events())


def test_on_divergence_recover_acts_by_itself_and_leaves_a_healthy_run_alone(
    tmp_path, stabexp_command, nowhere
):
    file = tmp_path / "fast.yaml"
    file.write_text(TASK + "on_divergence: recover\nbisect: {workers: 0}\n")
    done = stabexp_command("run", "-q", "--root", tmp_path, file)
    assert done.code == 0, done.errors
    assert "DIVERGED" in done.out
    assert "RECOVERED by fast-" in done.out
    assert "the bisect's verdict: learning_rate" in done.out
    file.write_text(TASK.replace("8.0", "0.1") + "on_divergence: recover\n")
    healthy = stabexp_command("run", "-q", "--root", tmp_path / "b", file)
    assert (healthy.code, len(list_runs(tmp_path / "b"))) == (0, 1)


def test_the_diagnostic_mode_names_the_batch_and_the_layers(tmp_path, stabexp_command, nowhere):
    run_id = crashed("bad_batch", tmp_path)
    done = stabexp_command("recover", "--root", tmp_path, "--diagnose", "-q", run_id)
    assert "the batch of step 160 is far worse than the others" in done.out
    assert "at fault: " in done.out
    assert "head" in done.out


def test_a_run_that_raised_is_not_touched_and_what_to_do_is_said(
    tmp_path, stabexp_command, nowhere
):
    file = tmp_path / "wrong.py"
    file.write_text(
        "import torch\n"
        "def train(run):\n"
        "    data = torch.utils.data.TensorDataset(torch.randn(64, 2))\n"
        "    model = torch.nn.Linear(2, 1)\n"
        "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "    for (x,) in run.steps(data, model=model, optimizer=optimizer):\n"
        "        loss = model(x).square().mean()\n"
        "        run.log(loss)\n"
        "        loss.backward()\n"
        "        optimizer.step()\n"
        "        if run.step == 3:\n"
        "            raise KeyError('label')\n"
    )
    stabexp_command("run", "-q", "--root", tmp_path, f"{file}:train", "-o", "steps=9")
    (run,) = list_runs(tmp_path)
    done = stabexp_command("recover", "--root", tmp_path, run.run_id)
    assert done.code == 1
    assert "its own code raised an error, which no setting cures" in done.errors
    assert "KeyError: 'label'" in done.errors
    assert "stabexp run --resume" in done.errors


@pytest.mark.slow
def test_without_memory_the_same_samples_go_through_in_smaller_parts(tmp_path):
    command = [sys.executable, "-m", "experiments.recovery.alone", "out_of_memory", "0"]
    ended = subprocess.run(
        [*command, tmp_path], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    run = next(r for r in list_runs(tmp_path) if r.run_id.endswith("-recovery-1"))
    assert run.status() == "FINISHED"
    assert run.manifest.params["batch.size"] == "16"
    assert run.manifest.params["batch.accumulate"] == "2"
    steps = run.read_steps()
    parent = run.parent
    assert parent is not None
    assert parent.status() == "FAILED"
    assert parent.read_steps()[-1].step == 159  # the long sample comes in step 160
    assert {len(r.sample_ids) for r in steps} == {32}
    assert len(steps) == 400


@pytest.mark.slow
def test_every_rollback_is_a_run_below_the_crashed_one_in_mlflow(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI")  # a store beside the runs instead
    run_id = crashed("bit_flip_weight", tmp_path)
    done = api.recover(run_id, root=tmp_path, without_verdict=True, drain_seconds=120.0)
    with sqlite3.connect(tmp_path / "mlflow.db", timeout=30) as store:
        rows = store.execute("select run_uuid, key, value from tags").fetchall()
    tags: dict[str, dict[str, str]] = {}
    for uuid, key, value in rows:
        tags.setdefault(uuid, {})[key] = value
    child = next(t for t in tags.values() if t.get("stabexp.recovers") == run_id)
    assert tags[child["mlflow.parentRunId"]]["stabexp.rollbacks"] == "1"
    assert child["stabexp.remedy"] == done.remedy == "plain_resume"
    assert child["stabexp.status"] == "healthy"


def test_a_killed_run_is_resumed_in_place_past_a_torn_checkpoint(tmp_path, nowhere):
    run_id = crashed("", tmp_path, seed=3, keep=30)
    killed = find_run(run_id, tmp_path)
    expected = digests(run_id, tmp_path)
    _cut_at(killed, 157)
    newest = killed.path / "checkpoints" / "step-00000150.pt"
    newest.write_bytes(newest.read_bytes()[:1000])
    done = recovered(run_id, tmp_path)
    assert (done.status, done.incident, done.remedy) == ("recovered", "killed", "plain_resume")
    assert done.final_run == run_id
    assert digests(run_id, tmp_path) == expected
    checks = " ".join(done.actions[0].checks)
    assert "damaged, passed over" in checks
    assert "made again: equal to the records bit for bit" in checks


def _cut_at(run: RunDirectory, step: int) -> None:
    """Leave a run as a kill in this step leaves it."""
    log = run.path / "steps.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[: step + 1]))
    assert read_steps(log)[-1].step == step
    outbox = run.path / "outbox.jsonl"
    kept = [line for line in outbox.read_text().splitlines(keepends=True) if '"status"' not in line]
    outbox.write_text("".join(kept))
