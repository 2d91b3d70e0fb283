"""A warning saves the state and changes nothing; a measure acts, is recorded, and is taken back."""

from __future__ import annotations

import json
from functools import partial
from itertools import pairwise

import pytest
import torch
from command_line import NOWHERE
from stabilisers.stabilised import Fork, facts, stabilised
from torch import nn
from torch.utils.data import TensorDataset

import stabexp
from stabexp.prediction import crossing
from stabexp.state import CheckpointStore

STEPS = 260


def climb(step):
    """Return the factor on a rate that climbs without end."""
    return 1.03 ** max(0, step - 130)


def climb_and_return(step):
    """Return the factor on a rate that climbs, and falls back before it has done harm."""
    return climb(step) if step < 175 else max(1.0, 3.78 * 0.9 ** (step - 175))


def train(run, *, factor=climb):
    """Fit noisy values with a rate that `factor` multiplies."""
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(512, 8, generator=draw)
    targets = inputs.sin().sum(1, keepdim=True) + torch.randn(512, 1, generator=draw)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    data = TensorDataset(inputs, targets)
    given = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    for x, y in run.steps(data, batch_size=64, **given):
        loss = (model(x) - y).square().mean()
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()


def warned(measure="none", *, factor=climb, **given):
    """Return records, run and events of a training under early warning."""
    return stabilised(
        partial(train, factor=factor),
        {"early_warning": {"measure": measure}},
        **{"steps": STEPS, "checkpoint_every": 20, **given},
    )


def of(events, what):
    return [event for event in events if event["what"] == what]


def test_without_a_measure_the_run_is_bit_for_bit_the_same_and_the_state_is_saved(tmp_path):
    plain, _, _ = stabilised(train, steps=STEPS)
    with CheckpointStore(tmp_path) as store:
        records, _, events = warned(store=store)
        saved = [info.step for info in store.infos()]
    assert facts(records) == facts(plain)
    assert {event["what"] for event in events} == {"warning"}
    (warning,) = [event for event in of(events, "warning") if event["kind"] == "rate_ramp"]
    assert 130 < warning["step"] < warning["crash"]
    assert warning["step"] + 1 in saved
    left = crossing([record.loss for record in plain])
    assert left - warning["step"] >= 15


def test_a_lower_rate_keeps_the_loss_from_leaving():
    plain, _, _ = warned()
    records, _, events = warned("lower_rate")
    assert crossing([record.loss for record in plain]) is not None
    assert crossing([record.loss for record in records]) is None
    assert len(of(events, "measure")) >= 2
    assert "multiplied by 0.5" in of(events, "measure")[0]["message"]


def test_the_measure_is_taken_back_when_calm_has_returned():
    records, _, events = warned("lower_rate", factor=climb_and_return, steps=400)
    first, undone = of(events, "measure")[0]["step"], of(events, "undone")[0]["step"]
    assert records[first + 1].lr < 0.6 * records[first].lr
    assert records[undone + 1].lr == pytest.approx(0.03)
    lowest = min(range(first, undone), key=lambda step: records[step].lr)
    back = [record.lr for record in records[lowest : undone + 2]]
    assert max(after / before for before, after in pairwise(back)) < 1.1


def test_clipping_holds_gradients_to_what_was_usual():
    records, _, events = warned("clip")
    measure = of(events, "measure")[0]["step"]
    usual = sorted(record.grad_norm for record in records[60:130])
    assert all(record.clip_coefficient == 1.0 for record in records[: measure + 1])
    clipped = [r for r in records[measure + 1 :] if r.clip_coefficient < 1.0]
    assert clipped
    assert max(r.grad_norm * r.clip_coefficient for r in clipped) < 1.2 * usual[-1]


@pytest.mark.parametrize("measure", ["lower_rate", "clip"])
def test_a_replay_from_inside_an_active_measure_is_exact(tmp_path, measure):
    with CheckpointStore(tmp_path, keep=20) as store:
        records, _, events = warned(measure, store=store)
    first = of(events, "measure")[0]["step"]
    saved = [info.step for info in CheckpointStore.reader(tmp_path).infos() if info.step > first]
    assert (
        saved[0] == first + 1
    )  # the warning's own snapshot: the measure is in force, not used yet
    for step in (saved[0], saved[2]):
        fork = Fork(checkpoints=tmp_path, step=step, records=records[:step])
        again, _, told = warned(measure, fork=fork)
        assert facts(again) == facts(records[step:])
        assert [e for e in events if e["step"] >= step] == told


def test_a_recorded_run_keeps_its_warning_and_the_command_says_when_it_came(
    tmp_path, stabexp_command
):
    run = stabexp.run(
        f"{__file__}:train",
        root=tmp_path,
        steps=200,
        stabilisers={"early_warning": {"measure": "lower_rate"}},
        drain_seconds=0,
        tracking={"uri": NOWHERE},
    )
    lines = (run.directory / "events.jsonl").read_text().splitlines()
    events = [event for line in lines if (event := json.loads(line)).get("by") == "early_warning"]
    warning, measure = of(events, "warning")[0], of(events, "measure")[0]
    assert measure["step"] == warning["step"]
    assert f"step {warning['crash']}" in warning["message"]
    said = stabexp_command("warn", run.run_id, "--root", tmp_path)
    assert f"a warning at step {warning['step']}" in said.out.splitlines()[0]
