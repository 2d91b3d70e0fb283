"""The finder works in any loop, tries what it found, and puts everything back bit for bit."""

from __future__ import annotations

import math
import random
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn, optim
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

import stabexp
from stabexp import experiment as experiments
from stabexp.advice.lr_finder import find_rate, probe
from stabexp.advice.rates import RateRamp
from stabexp.advice.trial_training import train_once
from stabexp.errors import StabexpError
from stabexp.state.hashing import state_hash
from stabexp.state.snapshot import capture
from stabexp.training import Program, RunSettings


def table(samples=128):
    draws = torch.Generator().manual_seed(1)
    x = torch.randn(samples, 8, generator=draws)
    return TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long())


def network():
    return nn.Sequential(
        nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2)
    )


def loss_of(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def own_loop(run, *, warmup=0, by_hand=False, epochs=None):
    """A loop with two groups and a schedule of its own, written into the groups at every step."""
    model = network()
    head = list(model[-1].parameters())
    rest = [p for p in model.parameters() if not any(p is other for other in head)]
    optimizer = optim.SGD([{"params": rest, "lr": 0.2}, {"params": head, "lr": 0.02}], momentum=0.9)
    ramp = LambdaLR(optimizer, lambda step: min(1.0, step / warmup) if warmup else 0.99**step)
    steps = run.steps(
        table(), model=model, optimizer=optimizer, scheduler=ramp, batch_size=16, epochs=epochs
    )
    for batch in steps:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        run.log(loss)
        loss.backward()
        if by_hand:
            for group in optimizer.param_groups:
                group["lr"] = 123.0
        optimizer.step()
        ramp.step()


def program(train):
    return Program(settings=RunSettings(name="own", steps=None, threads=1), train=train)


def of_task(name, optimizer, **settings):
    given = experiments.given(
        partial_file(name), (), {"optimizer": optimizer, "threads": 1, **settings}
    )
    return experiments.program(given.experiment, base=given.base)


def partial_file(name):
    from pathlib import Path

    file = Path(f"{name}.yaml")
    file.write_text(f"name: {name}\ntask: {name}\noptimizer: {{name: sgd}}\n", "utf-8")
    return file


def test_the_rate_is_the_ramps_whatever_the_loop_writes_and_groups_keep_their_proportion():
    seen = []

    def watched(run):
        step = optim.SGD.step

        def noted(self, *args, **kwargs):
            seen.append([group["lr"] for group in self.param_groups])
            return step(self, *args, **kwargs)

        optim.SGD.step, before = noted, optim.SGD.step
        try:
            own_loop(run, by_hand=True)
        finally:
            optim.SGD.step = before

    ramp = RateRamp(steps=20)
    trained = train_once(program(own_loop), (ramp,), steps=20, judged=False)
    assert [r.lr for r in trained.records] == [ramp.rate(step) for step in range(20)]
    trained = train_once(program(watched), (ramp,), steps=20, judged=False)
    assert [r.lr for r in trained.records] == [ramp.rate(step) for step in range(20)]
    assert trained.configured == (0.2,)


def test_a_smaller_group_is_moved_less_by_its_own_proportion():
    moved = []

    def train(run):
        weights = [nn.Parameter(torch.ones(1)) for _ in range(2)]
        module = nn.ParameterList(weights)
        optimizer = optim.SGD(
            [{"params": [weights[0]], "lr": 0.3}, {"params": [weights[1]], "lr": 0.03}]
        )
        for (x,) in run.steps(
            TensorDataset(torch.ones(8, 1)), model=module, optimizer=optimizer, batch_size=8
        ):
            optimizer.zero_grad()
            loss = (x * (weights[0] + weights[1])).mean()
            run.log(loss)
            loss.backward()
            optimizer.step()
        moved.extend(1 - w.item() for w in weights)

    train_once(program(train), (RateRamp(first=1e-3, last=1e-2, steps=3),), steps=3, judged=False)
    assert moved[0] == pytest.approx(sum((1e-3, 10**-2.5, 1e-2)), rel=1e-3)
    assert moved[1] == pytest.approx(0.1 * moved[0], rel=1e-3)


def test_a_live_model_is_left_as_it_was_bit_for_bit():
    torch.manual_seed(5)
    model = network()
    optimizer = optim.AdamW(model.parameters(), lr=3e-3)
    schedule = LambdaLR(optimizer, lambda step: 0.9**step)
    draws = torch.Generator().manual_seed(9)
    sampler = WeightedRandomSampler([1.0] * 128, 128, generator=draws)
    loader = DataLoader(table(), 16, sampler=sampler)
    for batch in loader:  # moments, buffers and gradients that are not those of a new model
        loss_of(model, batch).backward()
        optimizer.step()
        schedule.step()
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule, "draws": draws}
    torch.rand(3), np.random.rand(3), random.random()
    before = state_hash(capture(parts))
    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    found = stabexp.lr_find_in(model, optimizer, loader, loss_of, scheduler=schedule)
    assert state_hash(capture(parts)) == before
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == (
        threads,
        strict,
    )
    assert found.rate is not None
    assert found.losses[0] != found.losses[-1]  # it did train
    next(iter(loader))
    assert state_hash(capture(parts)) != before  # and the hash would have shown it


def test_a_training_function_leaves_no_file_no_run_and_no_draw(tmp_path):
    torch.manual_seed(7)
    streams = state_hash(capture({}))
    found = find_rate(program(own_loop), steps=100, probe_steps=20)
    assert state_hash(capture({})) == streams
    assert list(tmp_path.iterdir()) == []
    assert len(found.state_hash) == 64


def test_training_at_the_found_rate_learns_and_far_above_it_does_not():
    mlp = of_task("mlp", {"name": "sgd"})
    found = find_rate(mlp)
    assert found.rate is not None
    good = probe(mlp, found.rate, warmup=0, steps=150)
    assert good.held
    assert good.last_loss < 0.3 * good.first_loss
    assert not probe(mlp, 100 * found.rate, warmup=0, steps=150).held


def test_a_cold_start_does_not_bear_what_the_same_rate_bears_after_a_warmup():
    wide = {"name": "gpt", "args": {"width": 16, "heads": 2, "context": 16, "norm": "none"}}
    wide["args"]["init_std"] = 0.36
    gpt = of_task("gpt", {"name": "sgd"}, task=wide, batch={"size": 16})
    assert not probe(gpt, 0.3, warmup=0, steps=100).held
    assert probe(gpt, 0.3, warmup=100, steps=160).held


def test_the_warmup_of_a_loop_is_seen_and_tried():
    found = find_rate(program(partial(own_loop, warmup=12)), steps=120, probe_steps=15)
    assert found.warmup_steps == 12
    assert found.configured == 0.2
    assert {probe.warmup for probe in found.probes} == {12, 0}


def test_a_training_that_is_over_too_soon_is_told_and_no_rate_guessed():
    with pytest.raises(StabexpError, match="ended by itself after 16 of 200 steps"):
        find_rate(program(partial(own_loop, epochs=2)))


def test_a_ramp_that_does_not_rise_is_refused():
    with pytest.raises(StabexpError, match="does not rise"):
        find_rate(program(own_loop), first=1.0, last=0.1)


def test_the_end_of_a_trial_that_diverged_is_no_number():
    mlp = of_task("mlp", {"name": "sgd"})
    broken = probe(mlp, 1e4, warmup=0, steps=60)
    assert math.isnan(broken.last_loss)
    assert not broken.held


def test_the_command_adds_the_warmup_that_makes_the_figure_hold_and_undoes_a_factor():
    from dataclasses import replace

    from stabexp.advice.lr_finder import Probe
    from stabexp.api.advising import command_with

    file = partial_file("mlp")
    found = find_rate(of_task("mlp", {"name": "sgd"}), probe_steps=0)
    assert found.rate == found.figure
    figure = f"{found.figure:.2g}"
    trial = {"rate": found.figure, "steps": 60, "first_loss": 2.0, "last_loss": 1.0}
    cold = Probe(**trial, warmup=0, held=False)
    warm = Probe(**trial, warmup=30, held=True)
    lowered = replace(found, rate=found.figure / 10, probes=(cold, warm))
    plain = experiments.given(file).experiment
    assert command_with(found, "mlp.yaml", (), plain).endswith(f"-o optimizer.lr={figure}")
    assert command_with(lowered, "mlp.yaml", (), plain).endswith(
        f"-o optimizer.lr={figure} -o schedule.warmup_steps=30"
    )
    slowed = experiments.given(file, ["interventions.learning_rate=0.1"]).experiment
    assert command_with(found, "mlp.yaml", (), slowed).endswith(
        f"-o optimizer.lr={figure} -o interventions.learning_rate=1"
    )
    none = replace(found, rate=None, probes=(cold,))
    assert command_with(none, "mlp.yaml", (), plain) == ""
