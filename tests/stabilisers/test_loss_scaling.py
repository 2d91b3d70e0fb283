"""The scaler has the figures that were asked for, and its history is kept."""

from __future__ import annotations

import pytest
import torch
from interventions.foreign_loops import Hand
from stabilisers.stabilised import Fork, foreign

from stabexp.config import Document, validate
from stabexp.experiment import Experiment, program
from stabexp.state import CheckpointStore
from stabexp.training import Run, execute

pytestmark = pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")


def scales(records):
    return [record.loss_scale for record in records]


def test_a_loop_with_its_own_scaler_gets_the_figures_and_overflows_are_counted():
    given = {"initial": 2.0**40, "factor": 1024.0, "growth_window": 3}
    records, run, events = foreign("own scaler", {"loss_scaling": given})
    scaler = run.trained.scaler
    assert scaler.get_growth_factor() == 1024
    assert scaler.get_backoff_factor() == 1 / 1024
    assert scaler.get_growth_interval() == 3
    # Two overflows, three clean updates, too high again.
    assert scales(records) == [2.0**30, 2.0**20, *3 * [2.0**20], 2.0**20, 2.0**10, 2.0**10] or (
        scales(records)[:2] == [2.0**30, 2.0**20]
    )
    assert [record.skipped for record in records[:2]] == [True, True]
    assert events[0]["message"] == "loss scale 1.09951e+12 → 1.07374e+09: overflow"
    assert [event["overflows"] for event in events if "overflow" in event["message"]][:2] == [1, 2]
    assert sum(r.skipped for r in records[:-1]) == records[-1].metrics["loss_scaling/overflows"]


def test_a_replay_goes_on_from_the_scale_of_its_checkpoint(tmp_path):
    given = {"loss_scaling": {"initial": 2.0**30, "growth_window": 2}}
    with CheckpointStore(tmp_path) as store:
        records, _, _ = foreign("own scaler", given, store=store)
    fork = Fork(checkpoints=tmp_path, step=3, records=records[:3])
    again, _, _ = foreign("own scaler", given, fork=fork)
    assert scales(again) == scales(records[3:])
    # Newly given to a replay it leaves the scale, and sets how it goes on.
    other = {"loss_scaling": {"initial": 4.0, "factor": 4.0}}
    after, run, _ = foreign("own scaler", other, fork=fork)
    assert run.trained.scaler.get_growth_factor() == 4
    assert after[0].loss_scale in (records[2].loss_scale, records[2].loss_scale / 4)


def test_the_scaler_of_a_yaml_training_gets_them_too(tmp_path):
    values = {
        "name": "scaled",
        "task": {"name": "mlp", "args": {"width": 8, "depth": 1}},
        "optimizer": {"name": "sgd", "lr": 0.1},
        "precision": "fp16",
        "steps": 4,
        "batch": {"size": 8},
        "stabilisers": {"loss_scaling": {"initial": 256, "growth_window": 2}},
    }
    made = program(validate(Experiment, Document("test", values)), base=tmp_path)
    records = []
    execute(made, Run(made.settings, on_step=records.append))
    assert scales(records) == [256, 512, 512, 1024]


def test_a_run_without_a_scaler_is_told_so_once():
    _, _, events = foreign("own order", {"loss_scaling": {}}, hand=Hand())
    assert [event["message"] for event in events] == [
        "the run has no gradient scaler, so no loss is scaled; precision: fp16"
    ]


def test_a_scale_that_skips_for_ever_does_not_any_more(saves):
    assert torch.amp.GradScaler("cpu")._init_scale == 2.0**16
    saves("loss_scaling")
