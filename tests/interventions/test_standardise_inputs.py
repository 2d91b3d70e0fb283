"""Every feature of a batch gets mean 0 and deviation 1; everything else in it stays."""

from __future__ import annotations

from collections import namedtuple

import pytest
import torch
from interventions.hand_written import Hand, assert_same_bits, course

from stabexp.interventions import build
from stabexp.training.changes import Changes

Pair = namedtuple("Pair", "x y")


def shown(batch):
    return Changes(build({"standardise_inputs": "on"})).batch_begins(batch)


@pytest.mark.parametrize(
    ("shape", "dims"),
    [
        ((9, 5), (0,)),
        ((4, 7, 5), (0, 1)),
        ((4, 3, 6, 6), (0, 2, 3)),
        ((4, 3, 2, 5, 5), (0, 2, 3, 4)),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_figures_are_those_of_the_feature_over_the_batch(shape, dims, dtype):
    torch.manual_seed(0)
    x = (torch.randn(shape, dtype=torch.float64) * 30 + 100).to(dtype)
    variance, mean = torch.var_mean(x.double(), dims, correction=0, keepdim=True)
    expected = ((x.double() - mean) / variance.sqrt()).to(dtype)
    result = shown(x)
    assert result.dtype == dtype
    small = 1e-12 if dtype == torch.float64 else 1e-3
    assert torch.allclose(result, expected, rtol=small, atol=small)
    assert torch.equal(result, shown(x))


def test_constant_features_become_0_and_values_that_are_not_finite_do_not_count():
    x = torch.tensor([[0.1, 1.0], [0.1, 3.0], [0.1, torch.nan], [0.1, torch.inf]])
    result = shown(x)
    assert torch.equal(result[:, 0], torch.zeros(4))
    assert result[:2, 1].tolist() == [-1.0, 1.0]
    assert result[2, 1].isnan()
    assert result[3, 1] == torch.inf


@pytest.mark.parametrize("wrap", [tuple, list, lambda pair: Pair(*pair)])
def test_only_the_first_tensor_is_an_input(wrap):
    x, y = torch.randn(4, 3), torch.randn(4, 3)
    result = shown(wrap((x, y)))
    assert type(result) is type(wrap((x, y)))
    assert torch.equal(result[0], shown(x))
    assert result[1] is y
    as_dict = shown({"pixels": x, "labels": y})
    assert torch.equal(as_dict["pixels"], shown(x))
    assert as_dict["labels"] is y


@pytest.mark.parametrize("batch", [torch.arange(6).reshape(2, 3), torch.randn(4), torch.ones(0, 3)])
def test_integers_and_single_numbers_are_left_as_they_are(batch):
    assert torch.equal(shown(batch), batch)


def test_a_training_on_raw_features_is_the_training_on_standardised_ones():
    def by_hand(model, optimizer, step):
        forward = model.forward

        def standard(x):
            mean, deviation = x.double().mean(0), x.double().std(0, correction=0)
            return forward(((x.double() - mean) / deviation).float())

        model.forward = standard

    changed = course("adamw", interventions={"standardise_inputs": "on"})
    assert_same_bits(course("adamw", hand=Hand(start=by_hand)), changed)
