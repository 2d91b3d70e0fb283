"""A fine-tune's rate is told beside what is usual; from scratch there is no usual rate."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import stabexp
from stabexp.api.advising import usual_rate
from stabexp.preflight.rate_ranges import range_for, usual_warmup


@pytest.mark.parametrize(
    ("tuning", "optimizer", "rate", "side"),
    [
        ("full", "AdamW", 2e-5, "inside"),
        ("full", "Adam", 1e-3, "above"),
        ("lora", "AdamW", 2e-5, "below"),
        ("lora", "AdamW", 1e-3, "inside"),
        ("full", "SGD", 1e-3, None),
        ("", "AdamW", 1e-3, None),
    ],
)
def test_a_rate_lies_where_the_documents_put_it(tuning, optimizer, rate, side):
    usual = range_for(tuning, optimizer)
    assert (None if usual is None else usual.side(rate)) == side


def test_a_short_run_is_warmed_up_for_a_tenth_of_it():
    assert [usual_warmup(steps) for steps in (1, 200, 5_000, None)] == [1, 20, 500, 500]


def test_the_finder_tells_a_loaded_model_from_a_new_one():
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    data = TensorDataset(x, x.sum(1, keepdim=True))

    def loss(model, batch):
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    model = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    found = stabexp.lr_find_in(model, optimizer, data, loss)
    assert (found.tuning, usual_rate(found, steps=None)) == ("", "")
    model.config = SimpleNamespace(_name_or_path="somebody/model")
    found = stabexp.lr_find_in(model, optimizer, data, loss)
    assert found.tuning == "full"
    assert "1e-06 to 5e-05, 500 steps of linear warmup, then cosine decay" in usual_rate(
        found, steps=None
    )
    assert "lies above that range" in usual_rate(found, steps=None)
