"""What is tuned, what is frozen, and how new parts begin, seen before a single batch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from stabexp.instruments import Watched
from stabexp.preflight.modes import TrainingMode
from stabexp.preflight.ranks import RanksInStep
from stabexp.preflight.siblings import UnlikeSiblings
from stabexp.preflight.tuning import Adapters, FrozenEncoder, kind_of_tuning
from stabexp.preflight.usual_rate import UsualRate


class Adapted(nn.Module):
    """A linear layer with a low-rank adapter, named as PEFT names them."""

    def __init__(self, *, scaling: float = 2.0, dropout: float = 0.1) -> None:
        super().__init__()
        self.base = nn.Linear(16, 16).requires_grad_(False)
        self.lora_A = nn.Linear(16, 4, bias=False)
        self.lora_B = nn.Linear(4, 16, bias=False)
        nn.init.zeros_(self.lora_B.weight)
        self.lora_dropout = nn.Dropout(dropout)
        self.scaling = {"default": scaling}


class Rates:
    """What is known of the rate over the whole run."""

    def __init__(self, *rates: float) -> None:
        self.rates = list(rates)


def told(rule, model, *, optimizer=torch.optim.AdamW):
    parameters = [p for p in model.parameters() if p.requires_grad]
    rule.attach(Watched(model=model, optimizer=optimizer(parameters, lr=1e-3)))
    found = rule.finding()
    return found.rule if found else None


def base_trained(model):
    return model.requires_grad_(True)


def ends_zero(model):
    nn.init.zeros_(model.lora_A.weight)
    return model


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (Adapted(), None),
        (Adapted(dropout=0.0), None),
        (Adapted(scaling=16.0), "adapter_factor"),
        (Adapted(dropout=0.6), "adapter_dropout"),
        (base_trained(Adapted()), "base_not_frozen"),
        (ends_zero(Adapted()), "adapter_cannot_learn"),
        (nn.Linear(4, 4), None),
    ],
)
def test_an_adapter_that_cannot_be_right_is_told(model, name):
    assert told(Adapters(), model) == name


@pytest.mark.parametrize(
    ("model", "optimizer", "rate", "name"),
    [
        (Adapted(), torch.optim.AdamW, 1e-3, None),
        (Adapted(), torch.optim.AdamW, 0.05, "rate_outside_range"),
        (Adapted(), torch.optim.AdamW, 1e-6, "rate_outside_range"),
        (Adapted(), torch.optim.SGD, 0.05, None),
        (nn.Linear(4, 4), torch.optim.AdamW, 0.05, None),
    ],
)
def test_a_rate_is_compared_with_what_is_usual_for_what_is_tuned(model, optimizer, rate, name):
    assert told(UsualRate(Rates(0.0, rate)), model, optimizer=optimizer) == name
    assert kind_of_tuning(model) == ("lora" if isinstance(model, Adapted) else "")


@pytest.mark.parametrize(("frozen", "name"), [(True, None), (False, "encoder_not_frozen")])
def test_an_encoder_that_is_trained_with_its_denoiser_is_told(frozen, name):
    model = nn.ModuleDict({"vae": nn.Linear(8, 4), "unet": nn.Linear(4, 4)})
    model["vae"].requires_grad_(not frozen)
    assert told(FrozenEncoder(), model) == name


def test_an_autoencoder_alone_is_there_to_be_trained():
    assert told(FrozenEncoder(), nn.ModuleDict({"vae": nn.Linear(8, 4)})) is None


@pytest.mark.parametrize(
    ("spoil", "name"),
    [
        (lambda m: None, None),
        (lambda m: nn.init.normal_(m[1][1].weight, std=9.0), "unlike_siblings"),
        (lambda m: nn.init.normal_(m[0].weight[-3:], std=20.0), "new_rows_too_wide"),
        (lambda m: nn.init.normal_(m[0].weight[3:5], std=20.0), None),
    ],
)
def test_new_parts_start_like_those_they_join(spoil, name):
    model = nn.Sequential(nn.Embedding(64, 16), nn.Sequential(*(nn.Linear(8, 8) for _ in range(4))))
    with torch.no_grad():
        spoil(model)
    assert told(UnlikeSiblings(), model) == name


@pytest.mark.parametrize(("ranks", "name"), [("1", None), ("4", "ranks_out_of_step")])
def test_a_process_that_is_one_of_several_trains_with_them(monkeypatch, ranks, name):
    monkeypatch.setenv("WORLD_SIZE", ranks)
    assert told(RanksInStep(), nn.Linear(2, 2)) == name


@pytest.mark.parametrize(
    ("modes", "frozen", "name"),
    [
        ((True, True), False, None),
        ((False, False), False, "evaluation_mode"),
        ((True, False), True, None),
        ((True, True), True, "frozen_statistics_move"),
    ],
    ids=["training", "forgotten", "frozen part at rest", "frozen part moves"],
)
def test_each_part_is_in_the_mode_it_needs(modes, frozen, name):
    model = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(4), nn.Linear(4, 1))
    model[0].train(modes[0])
    model[1].train(modes[1]).requires_grad_(not frozen)
    rule = TrainingMode()
    rule.attach(Watched(model=model, optimizer=torch.optim.SGD(model[2].parameters(), lr=0.1)))
    rule.batch_begins(0, (), None)
    for module in model:
        rule.module_entered(module, ())
    found = rule.finding()
    assert (found.rule if found else None) == name
