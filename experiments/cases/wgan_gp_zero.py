"""A Wasserstein GAN with gradient penalty turns to NaN, now at once, now after some steps.

The penalty takes the norm of the critic's gradient as the root of a sum of squares. Where the ReLU
critic is flat the sum is zero, the root's slope infinite, and infinity times zero is NaN.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "norm = squared.sqrt()"
TARGET = 1.0
CRITIC_STEPS, SAMPLES = 5, 102400


class Gan(nn.Module):
    """A generator of points in the plane, and a critic of them."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))
        first = nn.Linear(2, 48)
        with torch.no_grad():
            first.bias.uniform_(-0.15, -0.02)
        self.critic = nn.Sequential(first, nn.ReLU(), nn.Linear(48, 1))


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return how far generated points lie from the circle of radius 2."""

    def penalty(points: Tensor) -> Tensor:
        points.requires_grad_()
        slopes = torch.autograd.grad(model.critic(points).sum(), points, create_graph=True)[0]
        squared = slopes.square().sum(1)
        if fixed:
            squared = squared + 1e-12
        norm = squared.sqrt()
        return 10 * (norm - 1).square().mean()

    angle = 6.2832 * torch.rand(SAMPLES)
    circle = 2 * torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(SAMPLES, 2)
    data = TensorDataset(circle, torch.randn(SAMPLES, 2), torch.rand(SAMPLES, 1))
    model = Gan()
    average = copy.deepcopy(model.generator)
    optimizer = torch.optim.Adam(model.critic.parameters(), 3e-3, betas=(0.0, 0.9))
    second = torch.optim.Adam(model.generator.parameters(), 4e-3, betas=(0.0, 0.9))
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    extra = {"generator_optimizer": second, "average": average}
    for real, noise, mix in run.steps(loader, model=model, optimizer=optimizer, extra=extra):
        fake = model.generator(noise).detach()
        loss = model.critic(fake).mean() - model.critic(real).mean()
        loss = loss + penalty(mix * real + (1 - mix) * fake)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if run.step % CRITIC_STEPS == CRITIC_STEPS - 1:
            second.zero_grad()
            (-model.critic(model.generator(noise)).mean()).backward()
            second.step()
            with torch.no_grad():
                for kept, p in zip(average.parameters(), model.generator.parameters(), strict=True):
                    kept.lerp_(p, 0.02)
    with torch.no_grad():
        return float((average(torch.randn(2000, 2)).norm(dim=1) - 2).abs().mean())
