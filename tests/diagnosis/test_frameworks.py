"""Logs written by real trainings of the frameworks are read and judged; all tell the same story."""

from __future__ import annotations

import json
import math

import pytest
from diagnosis.make_logs import STEPS, hugging_face, json_lines, lightning, plain, tensorboard

import stabexp

pytestmark = pytest.mark.filterwarnings(
    "ignore::Warning:lightning",  # deprecations inside Lightning, and its advice on loaders
    "ignore::Warning:transformers",
    "ignore::Warning:torch",
)

TURN = 40
"""Update, from 0, at which the rate of the bad runs jumps; harm shows in the next loss."""
LOGS = [
    pytest.param("trainer", "Hugging Face trainer state", "loss", 1, id="Hugging Face"),
    pytest.param("trainer/runs", "TensorBoard events", "train/loss", 1, id="its TensorBoard log"),
    pytest.param("lightning", "CSV", "train_loss_step", 0, id="Lightning"),
    pytest.param("plain.jsonl", "JSON lines", "loss", 0, id="a plain loop's JSON lines"),
    pytest.param("events", "TensorBoard events", "Loss/train", 0, id="a plain loop's TensorBoard"),
]


@pytest.mark.parametrize(("name", "kind", "loss", "first"), LOGS)
def test_a_rate_that_jumps_shows_as_such_in_the_log_of(logs, name, kind, loss, first):
    found = stabexp.diagnose(logs / name)
    assert (found.format, found.status, found.first_step) == (kind, "diverged", first)
    used = {curve.quantity: (curve.name, curve.points) for curve in found.used}
    assert used["loss"] == (loss, STEPS)
    assert used["grad_norm"][1] == used["lr"][1] == STEPS
    assert found.divergence.pattern == "exponential_growth"
    assert TURN + first <= found.divergence.onset <= TURN + 3 + first
    assert found.opinion.cause == "schedule"
    assert "64 %" in found.opinion.limits[0]
    assert "stabexp bisect" in found.next_command


def test_the_same_numbers_are_judged_alike_in_every_format(tmp_path):
    rows = plain(turn=TURN)
    text = "step,loss,grad_norm,lr\n" + "".join(
        f"{r['step']},{r['loss']!r},{r['grad_norm']!r},{r['lr']!r}\n" for r in rows
    )
    (tmp_path / "log.csv").write_text(text)
    json_lines(tmp_path / "log.jsonl", rows)
    (tmp_path / "log.json").write_text(json.dumps(rows))
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    (tmp_path / "history.json").write_text(json.dumps({"history": columns}))
    tensorboard(tmp_path / "events", rows)
    found = {
        (d.divergence.detected, d.divergence.onset, d.divergence.pattern)
        for name in ("log.csv", "log.jsonl", "log.json", "history.json", "events")
        if (d := stabexp.diagnose(tmp_path / name))
    }
    assert len(found) == 1


def test_a_healthy_training_is_called_healthy(tmp_path):
    found = stabexp.diagnose(json_lines(tmp_path / "log.jsonl", plain()))
    assert (found.status, found.divergence, found.opinion) == ("healthy", None, None)
    assert {check.detector for check in found.checks} == {
        "non_finite",
        "divergence",
        "gradient_explosion",
    }


@pytest.mark.parametrize(
    ("filtered", "said"),
    [pytest.param(True, "hides a NaN", id="hidden"), pytest.param(False, "", id="shown")],
)
def test_a_nan_in_the_trainer_is_found_where_it_began(tmp_path, filtered, said):
    hugging_face(tmp_path, poison=30, filtered=filtered)
    entries = json.loads((tmp_path / "trainer_state.json").read_text())["log_history"]
    logged = [entry["loss"] for entry in entries if "loss" in entry]
    assert logged[30:] == [0.0] * 30 if filtered else all(map(math.isnan, logged[30:]))
    found = stabexp.diagnose(tmp_path)
    assert (found.divergence.detector, found.divergence.onset) == ("non_finite", 31)
    assert said in " ".join(found.warnings)


def test_a_nan_hidden_in_a_mean_over_ten_steps_is_placed_between_two_entries(tmp_path):
    hugging_face(tmp_path, poison=33, every=10)
    found = stabexp.diagnose(tmp_path)
    assert found.onset_between == (31, 40)
    assert any("mean over about 10 steps" in limit for limit in found.opinion.limits)


@pytest.mark.parametrize("filtered", [True, False])
def test_one_nan_that_the_model_never_felt_is_no_divergence(tmp_path, filtered):
    hugging_face(tmp_path, blink=30, filtered=filtered)
    entries = json.loads((tmp_path / "trainer_state.json").read_text())["log_history"]
    last = [entry["loss"] for entry in entries if "loss" in entry][-1]
    assert math.isnan(last) != filtered  # without the filter one NaN stays in the Trainer's sum
    found = stabexp.diagnose(tmp_path)
    assert (found.status, found.last_step) == ("healthy", STEPS if filtered else 30)
    assert ("running sum keeps one NaN" in " ".join(found.warnings)) != filtered


def test_a_checkpoints_state_ends_at_the_checkpoint_and_says_so(tmp_path):
    hugging_face(tmp_path, save_steps=30)
    (tmp_path / "trainer_state.json").unlink()
    found = stabexp.diagnose(tmp_path)
    assert found.last_step == STEPS
    assert "checkpoint of step 60" in found.warnings[0]
    found = stabexp.diagnose(tmp_path / "checkpoint-30")
    assert (found.status, found.last_step) == ("healthy", 30)


def test_a_log_of_every_fifth_step_says_how_exactly_the_onset_is_known(tmp_path):
    found = stabexp.diagnose(lightning(tmp_path, turn=TURN, every=5))
    assert (found.interval, found.onset_between) == (5, (40, 44))
    assert found.opinion.cause == "inconclusive"
    assert "5 steps apart" in found.opinion.reason


def test_a_run_that_went_on_in_a_second_event_file_counts_as_one(tmp_path):
    rows = plain(turn=TURN)
    tensorboard(tmp_path, [row | {"loss": 77.0} if row["step"] > 25 else row for row in rows[:35]])
    (first,) = tmp_path.glob("*tfevents*")
    first.rename(tmp_path / "events.out.tfevents.0000000001.host")
    tensorboard(tmp_path, rows, start=26)
    found = stabexp.diagnose(tmp_path)
    assert TURN <= found.divergence.onset <= TURN + 3
    assert "goes back from step 34 to 26" in found.warnings[0]


def test_curves_that_add_scalars_puts_into_folders_are_found(tmp_path):
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        for row in plain(turn=TURN):
            writer.add_scalars("Loss", {"train": row["loss"], "val": 1.0}, int(row["step"]))
    found = stabexp.diagnose(tmp_path)
    assert [curve.name for curve in found.used] == ["Loss/train"]
    assert found.status == "diverged"
