"""Which curve is which, by its name."""

from __future__ import annotations

import pytest

from stabexp.diagnosis.names import quantity_of


@pytest.mark.parametrize(
    ("name", "quantity"),
    [
        ("loss", "loss"),
        ("train/loss", "loss"),
        ("Loss/train", "loss"),
        ("Training Loss", "loss"),
        ("train_loss_step", "loss"),
        ("sunny-tree-3 - train/loss", "loss"),
        ("lm-loss-training/lm loss", "loss"),
        ("grad_norm", "grad_norm"),
        ("train/grad_norm", "grad_norm"),
        ("grad_2.0_norm_total", "grad_norm"),
        ("gnorm", "grad_norm"),
        ("lr", "lr"),
        ("train/learning_rate", "lr"),
        ("lr-Adam", "lr"),
        ("lr-AdamW/pg1", "lr"),
        ("amp/scale", "loss_scale"),
    ],
)
def test_is_known(name, quantity):
    assert quantity_of(name) == quantity


@pytest.mark.parametrize(
    "name",
    [
        "val_loss",
        "eval/loss",
        "Loss/validation",
        "test_loss",
        "loss/dev",
        "actor_loss",
        "aux_loss",
        "clipped_grad_norm",
        "grad_norm/layer1",
        "lr-SGD-momentum",
        "lr-Adam-weight_decay",
        "run - train/loss__MAX",
        "closs",
        "",
    ],
)
def test_is_not_guessed(name):
    assert quantity_of(name) is None
