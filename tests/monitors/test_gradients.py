"""Figures of gradients beside the slow computation."""

from __future__ import annotations

import math
import statistics

import pytest
import torch
from monitors.norms import elements, figures, loss_of, measure, norms_of

from stabexp.monitors.gradients import Gradients


def test_gradient_figures_are_those_of_all_elements_of_a_layer(model):
    with torch.no_grad():
        model[0].bias.fill_(-10.0)  # its ReLU is shut, so these gradients are zeros
        model[0].bias[:4] = 0.5
    seen = measure(Gradients(), model, loss_of(model))
    for name in ("0", "2"):
        own = elements([p.grad for p in model.get_submodule(name).parameters()])
        expected = {
            "grad_mean": statistics.fmean(own),
            "grad_std": statistics.pstdev(own),
            "grad_max": max(own),
            "grad_min": min(own),
            "grad_zeros": own.count(0.0) / len(own),
        }
        for kind, value in expected.items():
            assert seen[f"layers/{name}/{kind}"] == pytest.approx(value, rel=1e-4, abs=1e-6), kind
    assert seen["layers/0/grad_zeros"] >= 0.5


def test_a_nan_shows_in_every_figure_of_its_layer_and_in_no_other(model):
    loss_of(model)().backward()
    model[0].weight.grad[1, 1] = float("nan")
    monitor = Gradients()
    monitor.attach(model)
    parameters = list(model.parameters())
    seen = figures(monitor.before_update(parameters, norms_of(parameters)))
    wrong = {name for name, value in seen.items() if math.isnan(value)}
    assert wrong == {f"layers/0/grad_{kind}" for kind in ("mean", "std", "max", "min")}
