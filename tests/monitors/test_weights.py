"""Figures of weights beside the slow computation."""

from __future__ import annotations

import statistics

import pytest
import torch
from monitors.norms import elements, figures, loss_of, measure, weight_norms_of
from torch import nn

from stabexp.monitors.weights import Weights


def test_weight_figures_are_those_after_the_update(model):
    seen = measure(Weights(), model, loss_of(model))
    for name in ("0", "2"):
        own = elements(model.get_submodule(name).parameters())
        assert seen[f"layers/{name}/weight_mean"] == pytest.approx(statistics.fmean(own), rel=1e-4)
        variance = statistics.pvariance(own)
        assert seen[f"layers/{name}/weight_variance"] == pytest.approx(variance, rel=1e-4)
        assert seen[f"layers/{name}/weight_max"] == pytest.approx(max(map(abs, own)))


def test_the_mean_of_half_precision_weights_does_not_overflow():
    model = nn.Linear(300, 300, bias=False).to(torch.float16)
    with torch.no_grad():
        model.weight.fill_(300.0)  # their sum is beyond float16
    monitor = Weights()
    monitor.attach(model)
    weights = list(model.parameters())
    seen = figures(monitor.after_update(weights, weight_norms_of(weights)))
    assert seen["layers/model/weight_mean"] == pytest.approx(300, rel=1e-3)
    assert seen["layers/model/weight_variance"] == pytest.approx(0, abs=1.0)
