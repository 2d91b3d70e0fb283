"""What is frozen stays bit for bit as it is, running statistics and decay included."""

from __future__ import annotations

import torch
from stabilisers.stabilised import stabilised
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))

    def forward(self, x):
        return self.net(x)


def latent(run):
    """Train a network on what an encoder gives, with decay and momentum on both."""
    torch.manual_seed(0)
    model = nn.ModuleDict({"vae": Encoder(), "unet": nn.Linear(4, 4)})
    run.model = model
    run.before = {key: value.clone() for key, value in model.state_dict().items()}
    optimizer = torch.optim.AdamW(model.parameters(), 0.1, weight_decay=0.5)
    run.optimizer = optimizer
    run.modes = set()
    data = torch.utils.data.TensorDataset(torch.randn(96, 4))
    for (x,) in run.steps(data, model=model, optimizer=optimizer, batch_size=8):
        model.train()
        run.modes.add(model["vae"].net[2].training)
        loss = model["unet"](model["vae"](x)).square().mean()
        run.log(loss)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()


def moved(given):
    _, run, _ = stabilised(latent, {"freeze": given} if given else {})
    after = run.model.state_dict()
    return {key for key, value in after.items() if not torch.equal(value, run.before[key])}, run


def test_a_frozen_encoder_does_not_move_at_all():
    everything, _ = moved({})
    assert everything == set(moved({})[1].model.state_dict())
    found, run = moved({"modules": ["vae"]})
    assert found == {"unet.weight", "unet.bias"}
    trained = {id(p) for p in run.model["unet"].parameters()}
    assert {id(p) for p in run.optimizer.state} == trained
    assert all(p.requires_grad for p in run.model.parameters())


def test_without_evaluation_mode_its_statistics_follow_the_data():
    found, _ = moved({"modules": ["vae.*"], "evaluating": False})
    assert {key for key in found if key.startswith("vae")} == {
        f"vae.net.1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")
    }


def test_a_training_that_its_body_throws_over_trains_its_head(saves):
    saves("freeze")
