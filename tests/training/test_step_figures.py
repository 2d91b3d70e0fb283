"""Each figure of a step record against the slow and obvious way to compute it."""

from __future__ import annotations

import math

import pytest
import torch

from stabexp.tasks import load_task
from stabexp.training import Program, RunSettings

TASK = load_task("mlp", {"width": 8, "depth": 1})


def _norm(tensors):
    return math.sqrt(sum(float(t.detach().double().pow(2).sum()) for t in tensors))


def test_norms_ratio_rate_and_samples_are_what_they_say(train):
    expected = []

    def loop(run):
        model = TASK.model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        for batch in run.steps(
            TASK.dataset(), model=model, optimizer=optimizer, scheduler=scheduler
        ):
            loss = TASK.loss(model, batch)
            run.log(loss, accuracy=0.5)
            loss.backward()
            gradients = _norm([p.grad for p in model.parameters()])
            before = [p.detach().clone() for p in model.parameters()]
            rate = optimizer.param_groups[0]["lr"]
            optimizer.step()
            moved = _norm([p.detach() - b for p, b in zip(model.parameters(), before, strict=True)])
            expected.append((loss.item(), rate, gradients, moved / _norm(before)))
            assert optimizer.param_groups[0]["lr"] == rate
            scheduler.step()
            optimizer.zero_grad()
        expected.append(_norm(list(model.parameters())))

    settings = RunSettings(name="figures", steps=4, batch_size=10, clip_norm=0.5)
    records, run = train(Program(settings=settings, train=loop))
    final = expected.pop()
    assert len(records) == len(expected) == 4
    for record, (loss, rate, gradients, ratio) in zip(records, expected, strict=True):
        assert record.loss == loss
        assert record.lr == rate
        assert record.grad_norm == pytest.approx(gradients, rel=1e-5)
        assert record.clip_coefficient == pytest.approx(min(1, 0.5 / record.grad_norm), rel=1e-4)
        # All parameters but the first (512 elements, half of them) are sampled whole.
        assert record.update_ratio == pytest.approx(ratio, rel=0.2)
        assert record.position == 10 * record.step
        assert record.batch_size == len(set(record.sample_ids)) == 10
        assert record.metrics == {"accuracy": 0.5}
        assert record.layers is None or record.step == 0
    assert records[-1].param_norm == pytest.approx(final, rel=1e-5)
    assert set(records[0].layers) == {"1", "4"}
    assert len({record.digest for record in records}) == 4
    assert run.dataset_size == 1797


@pytest.mark.parametrize("make", [float, torch.tensor], ids=["number", "tensor"])
def test_the_rate_is_recorded_as_it_was_in_the_update_and_left_as_it_was(train, make):
    def loop(run):
        model = TASK.model()
        optimizer = torch.optim.Adam(model.parameters(), lr=make(0.5), foreach=False)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        rate = optimizer.param_groups[0]["lr"]
        for batch in run.steps(
            TASK.dataset(), model=model, optimizer=optimizer, scheduler=scheduler
        ):
            loss = TASK.loss(model, batch)
            run.log(loss)
            loss.backward()
            before = float(optimizer.param_groups[0]["lr"])
            optimizer.step()
            assert float(optimizer.param_groups[0]["lr"]) == before
            scheduler.step()
            optimizer.zero_grad()
            assert make is float or optimizer.param_groups[0]["lr"] is rate

    for interventions, factor in (({}, 1.0), ({"learning_rate": 0.5}, 0.5)):
        settings = RunSettings(name="figures", steps=3, interventions=interventions)
        records, _ = train(Program(settings=settings, train=loop))
        assert [record.lr for record in records] == [0.5 * factor, 0.25 * factor, 0.125 * factor]


def test_a_skipped_update_is_recorded_with_its_own_rate_and_moves_nothing(make_program, train):
    made = make_program(
        task={"name": "mlp", "args": {"init_scale": 20}},
        optimizer={"name": "sgd", "lr": 1.0},
        schedule={"name": "linear"},
        precision="fp16",
        steps=4,
    )
    records, _ = train(made)
    first = records[0]
    assert first.skipped
    assert first.lr == 1.0
    assert first.update_ratio == 0.0
    assert first.nonfinite_grads > 0
    assert first.nonfinite_params == 0
    assert first.loss_scale == 2.0**15
    assert [record.lr for record in records] == [1.0, 0.75, 0.5, 0.25]


def test_nonfinite_numbers_are_kept_and_counted(train):
    def loop(run):
        model = TASK.model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in run.steps(TASK.dataset(), model=model, optimizer=optimizer):
            loss = TASK.loss(model, batch)
            if run.step == 2:
                loss = loss * float("nan")
            run.log(loss)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    settings = RunSettings(name="nan", steps=9, detectors={"non_finite": None})
    records, run = train(Program(settings=settings, train=loop))
    assert math.isnan(records[2].loss)
    assert math.isnan(records[2].grad_norm)
    assert (records[2].nonfinite_grads, records[2].nonfinite_params) == (4, 4)
    assert run.divergence is not None
    assert run.divergence.detected == records[-1].step
    assert records[-1].step < 8
