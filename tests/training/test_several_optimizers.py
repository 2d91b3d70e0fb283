"""Two networks that learn by turns, each with its own optimizer, schedule and clipping."""

from __future__ import annotations

import pytest
import torch
from recording import record
from torch import nn, optim
from torch.utils.data import DataLoader
from training.feed_worlds import table

from stabexp.bisection.replay import first_mismatch
from stabexp.interventions import build

STEPS, CRITIC = 14, 3
"""Updates, and how many of the critic's there are for one of the generator."""


def adversarial(*, scaled=False, order=("generator", "critic")):
    """Return a training whose critic is updated on every batch, its generator on each third."""

    def train(run):
        models = {
            "generator": nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.1), nn.Linear(16, 8)),
            "critic": nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)),
        }
        optimizers = {
            "generator": optim.Adam(models["generator"].parameters(), 1e-3),
            "critic": optim.RMSprop(models["critic"].parameters(), 5e-3),
        }
        schedules = {
            "generator": optim.lr_scheduler.StepLR(optimizers["generator"], 2, 0.5),
            "critic": optim.lr_scheduler.ExponentialLR(optimizers["critic"], 0.9),
        }
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=4, enabled=scaled)

        def update(name, loss):
            optimizers[name].zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizers[name])
            nn.utils.clip_grad_norm_(models[name].parameters(), 0.5)
            scaler.step(optimizers[name])
            schedules[name].step()

        for x, _ in run.steps(
            DataLoader(table(), 8, shuffle=True),
            model=models,
            optimizer={name: optimizers[name] for name in order},
            scheduler=schedules,
            scaler=scaler if scaled else None,
        ):
            critic, generator = models["critic"], models["generator"]
            fake = generator(torch.randn(len(x), 4))
            loss = critic(fake.detach()).mean() - critic(x).mean()
            run.log(loss)
            update("critic", loss)
            if run.step % CRITIC == CRITIC - 1:
                update("generator", -critic(generator(torch.randn(len(x), 4))).mean())
            scaler.update()

    return train


@pytest.mark.parametrize("scaled", [False, True])
def test_two_optimizers_by_turns_go_on_exactly(tmp_path, scaled):
    made = record(adversarial(scaled=scaled), tmp_path, steps=STEPS)
    assert len({record.digest for record in made.records}) == STEPS
    for step in (0, 2, 3, 8, 10):
        assert first_mismatch(made.records, made.replay(step)) == (None, "")


def test_the_rate_recorded_is_that_of_the_first_optimizer_that_stepped(tmp_path):
    made = record(adversarial(), tmp_path, steps=6)
    rates = [record.lr for record in made.records]
    critic = [5e-3 * 0.9**step for step in range(6)]
    assert rates == pytest.approx([*critic[:2], 1e-3, *critic[3:5], 1e-3])


@pytest.mark.parametrize(
    ("dose", "same"),
    [
        pytest.param({"learning_rate": 1.0}, True, id="rate as it is"),
        pytest.param({"clip_norm": 0.5}, True, id="clipped as it is"),
        pytest.param({"weight_decay": 1.0}, True, id="decay as it is"),
        pytest.param({"learning_rate": 0.5}, False, id="half the rate"),
        pytest.param({"clip_norm": 0.1}, False, id="clipped lower"),
    ],
)
def test_a_change_acts_on_both_and_none_changes_nothing(tmp_path, dose, same):
    made = record(adversarial(), tmp_path, steps=8)
    again = made.replay(3, interventions=build(dose))
    assert (first_mismatch(made.records, again) == (None, "")) == same
    if "learning_rate" in dose:
        factor = dose["learning_rate"]
        pairs = zip(again, made.records[3:], strict=True)
        assert all(ours.lr == factor * own.lr for ours, own in pairs)


def test_both_networks_are_part_of_the_parameters(tmp_path):
    made = record(adversarial(), tmp_path, steps=1)
    parts = made.run.parts
    assert set(parts.objects) >= {
        "model",
        "optimizer.generator",
        "optimizer.critic",
        "scheduler.generator",
        "scheduler.critic",
    }
    total = torch.cat([p.detach().flatten() for p in parts.model.parameters()]).norm()
    assert made.records[0].param_norm == pytest.approx(float(total))
