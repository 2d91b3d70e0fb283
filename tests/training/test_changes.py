"""Interventions inside a run: the control is untouched, and a change holds from the fork on."""

from __future__ import annotations

import pytest
import torch

from stabexp.errors import ConfigError
from stabexp.interventions import build
from stabexp.interventions.base import Intervention
from stabexp.state import CheckpointStore, first_difference
from stabexp.training import Fork
from stabexp.training.boundary import Boundary
from stabexp.training.changes import Changes

GPT = {"name": "gpt", "args": {"width": 16, "heads": 2, "context": 16, "stride": 2000}}
MLP = {"name": "mlp", "args": {"width": 16, "norm": "batch"}}
COSINE = {"name": "cosine", "warmup_steps": 2}
NOTHING = {
    "weight_decay": 1.0,
    "gradient_scale": 1.0,
    "layer_rate": "*=1",
    "adam_eps": 1e-8,
    "betas": "0.9,0.999",
    "optimizer_state": "kept",
    "init_scale": 1.0,
    "eager": "on",
}


class Frozen(Intervention):
    """Applies no update."""

    def freezes(self):
        return True


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_doses_that_change_nothing_are_the_control(make_program, train, precision, accumulate):
    made = make_program(
        task=GPT,
        optimizer={"lr": 0.01, "weight_decay": 0.1},
        schedule=COSINE,
        clip=0.5,
        precision=precision,
        batch={"size": 4, "accumulate": accumulate},
        steps=5,
    )
    control, run = train(made)
    changed, other = train(made, interventions=build(NOTHING))
    assert [r.digest for r in changed] == [r.digest for r in control]
    assert [r.lr for r in changed] == [r.lr for r in control]
    assert first_difference(run.snapshot(), other.snapshot()) is None


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("optimizer", [{"name": "sgd", "momentum": 0.9}, {"name": "adamw"}])
def test_a_frozen_training_measures_every_batch_at_the_same_state(
    make_program, train, precision, optimizer
):
    settings = {"lr": 0.05, "weight_decay": 0.1, **optimizer}
    made = make_program(task=GPT, optimizer=settings, precision=precision, schedule=COSINE)
    control, _ = train(made)
    frozen, run = train(made, interventions=[Frozen()])
    assert [r.sample_ids for r in frozen] == [r.sample_ids for r in control]
    assert frozen[0].loss == control[0].loss
    assert [r.grad_norm for r in frozen[:1]] == [r.grad_norm for r in control[:1]]
    assert len({r.param_norm for r in frozen}) == 1
    assert len({r.loss for r in frozen}) == len(frozen)
    assert {r.update_ratio for r in frozen} == {0.0}
    assert all(r.skipped for r in frozen)
    assert [r.lr for r in frozen] == [r.lr for r in control]
    assert run.snapshot().objects["optimizer"]["value"]["state"]["state"] == {}


def test_a_fork_holds_the_rate_of_its_first_step_and_the_schedule_goes_on(
    make_program, train, tmp_path
):
    made = make_program(
        task=MLP, optimizer={"lr": 0.01}, schedule=COSINE, steps=8, checkpoint={"every": 3}
    )
    with CheckpointStore(tmp_path / "checkpoints") as store:
        original, run = train(made, keep_saving=True, checkpoints=store)
    fork = Fork(checkpoints=store.directory, step=3)
    held, other = train(made, fork=fork, interventions=build({"hold_rate": "on"}))
    assert {r.lr for r in held} == {original[3].lr}
    assert held[0].digest == original[3].digest
    assert held[1].digest != original[4].digest
    schedules = [r.snapshot().objects["scheduler"] for r in (run, other)]
    assert schedules[0] == schedules[1]
    groups = [
        r.snapshot().objects["optimizer"]["value"]["state"]["param_groups"] for r in (run, other)
    ]
    assert groups[0] == groups[1]


def test_a_smaller_start_and_a_fresh_optimizer_act_where_they_should(make_program, train, tmp_path):
    made = make_program(task=MLP, optimizer={"lr": 0.01}, steps=6, checkpoint={"every": 3})
    with CheckpointStore(tmp_path / "checkpoints") as store:
        original, _ = train(made, keep_saving=True, checkpoints=store)
    smaller, _ = train(made, interventions=build({"init_scale": 0.1}))
    assert smaller[0].param_norm < 0.7 * original[0].param_norm
    fork = Fork(checkpoints=store.directory, step=3)
    late, _ = train(made, fork=fork, interventions=build({"init_scale": 0.1}))
    assert [r.digest for r in late] == [r.digest for r in original[3:]]
    fresh, _ = train(made, fork=fork, interventions=build({"optimizer_state": "fresh"}))
    assert fresh[0].loss == original[3].loss
    assert fresh[0].update_ratio > original[3].update_ratio


def test_a_wrong_layer_ends_the_run_before_its_first_step(make_program, train):
    made = make_program(task=MLP, optimizer={"lr": 0.01})
    with pytest.raises(ConfigError, match="has no module 'attention'; allowed: "):
        train(made, interventions=build({"layer_rate": "attention=0"}))


def test_an_update_that_raises_gives_the_groups_back():
    class Failing(torch.optim.SGD):
        def step(self):
            raise ArithmeticError("the update failed")

    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    gradient = parameter.grad
    optimizer = Failing([parameter], lr=0.5)
    groups, group = optimizer.param_groups, optimizer.param_groups[0]
    model = torch.nn.Module()
    changes = Changes(build({"weight_decay": 0.5, "gradient_scale": 0.5}))
    changes.begin(model, optimizer, scratch=True)
    boundary = Boundary(
        model,
        optimizer,
        scaler=None,
        monitors=(),
        clip=lambda configured: configured,
        lr_scale=lambda step: 0.1,
        changes=changes,
    )
    with pytest.raises(ArithmeticError):
        optimizer.step()
    assert optimizer.param_groups is not groups
    boundary.close()
    assert optimizer.param_groups is groups
    assert optimizer.param_groups[0] is group
    assert group["lr"] == 0.5
    assert parameter.grad is gradient
