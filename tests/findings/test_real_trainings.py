"""What findings say of real trainings with one thing wrong, and of one with nothing."""

from __future__ import annotations

import pytest
import torch
from recording import executed
from torch import nn
from torch.utils.data import TensorDataset

from stabexp.detectors import opinion
from stabexp.findings import findings_of
from stabexp.training import Program, RunSettings

STEPS = 160


def points(count=512):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, 16, generator=generator)
    return x, (x[:, 0] * x[:, 1] > 0).long()


def net(depth, activation):
    layers = [part for _ in range(depth) for part in (nn.Linear(16, 16), activation())]
    return nn.Sequential(*layers, nn.Linear(16, 2))


def trained(*, lr=0.2, depth=2, activation=nn.Tanh, spoil=lambda run, model, loss: loss):
    """Return a real training's records and its finding, every layer measured at every step."""

    def train(run):
        x, y = points()
        model = net(depth, activation)
        optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        for inputs, labels in run.steps(TensorDataset(x, y), model=model, optimizer=optimizer):
            loss = spoil(run, model, nn.functional.cross_entropy(model(inputs), labels))
            run.log(loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    settings = RunSettings(
        name="test", steps=STEPS, batch_size=32, monitors={"layers": {"every": 1}}
    )
    records, run = executed(Program(settings=settings, train=train))
    return records, run.divergence


def found(records, divergence, **settings):
    known = {"precision": "fp32", "batch_size": 32, "trivial_loss": 0.693} | settings
    view = opinion(records, divergence, known) if divergence is not None else None
    return findings_of(records, divergence=divergence, settings=known, opinion=view)


def test_a_healthy_training_gives_no_finding():
    assert found(*trained()) == ()


def test_a_rate_far_too_high_loses_the_run_and_leads_the_causes():
    (lost, *_) = found(*trained(lr=300.0, activation=nn.ReLU), clip_norm=None, warmup_steps=10)
    assert lost.symptom in {"explosion", "divergence"}
    assert lost.likely[0].cause == "learning_rate"


def test_a_rate_far_too_low_is_told_from_one_too_high_by_the_size_of_the_updates():
    (finding,) = found(*trained(lr=1e-9))
    assert finding.symptom == "not_decreasing"
    assert finding.likely[0].cause == "learning_rate_low"
    assert "learning_rate" in [cause.cause for cause in finding.likely if cause.weight == "against"]
    assert finding.checks[0].command.endswith("--set learning_rate=0.1")


def test_gradients_that_fade_on_their_way_through_a_deep_net_are_seen():
    (finding, *_) = found(*trained(depth=12, activation=nn.Sigmoid, lr=0.05))
    assert finding.symptom == "not_decreasing"
    assert finding.likely[0].cause == "vanishing"
    assert "weakest layer's gradient" in finding.likely[0].why


def test_a_layer_of_dead_units_is_named_with_those_behind_it():
    def dead(run, model, loss):
        if run.step == 40:
            model[2].bias.data.fill_(-100.0)
        return loss

    found_ = found(*trained(activation=nn.ReLU, depth=3, spoil=dead))
    finding = next(f for f in found_ if f.symptom == "degenerate_layer")
    assert {"0", "2"} <= set(finding.layers)
    assert "6" not in finding.layers


def test_swings_that_begin_in_the_middle_are_seen_though_the_run_survives():
    def uneven(run, model, loss):
        return loss * (4.0 if run.step >= 100 and run.step % 3 == 0 else 1.0)

    symptoms = [f.symptom for f in found(*trained(lr=0.01, spoil=uneven))]
    assert "oscillating" in symptoms or symptoms[0] == "divergence"


@pytest.mark.parametrize("factor", [1e-4, 1.0, 1e4], ids=lambda f: f"a loss {f:g} times as large")
def test_the_unit_of_the_loss_does_not_matter(factor):
    """The documents' absolute limits alarm on one of the three."""
    records, divergence = trained(lr=0.2 / factor, spoil=lambda run, model, loss: loss * factor)
    assert divergence is None
    assert found(records, divergence, trivial_loss=0.693 * factor) == ()
