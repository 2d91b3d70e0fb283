"""A training on advantages within groups turns to NaN when a group has one member.

Rewards are normalised within each group by their standard deviation, which for one reward is NaN.
Same kind as ppo_last_batch_one, inside the batch instead of at its end.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "return (rewards - rewards.mean()) / (rewards.std() + 1e-6)"
TARGET = 0.35
GROUPS, SAMPLES = 5, 7200


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""

    def normalised(rewards: Tensor) -> Tensor:
        if fixed and len(rewards) < 2:
            return torch.zeros_like(rewards)
        return (rewards - rewards.mean()) / (rewards.std() + 1e-6)

    def criterion(x: Tensor, group: Tensor, best: Tensor) -> Tensor:
        log_p = model(x).log_softmax(1)
        tried = torch.multinomial(log_p.detach().exp(), 1)
        rewards = (tried.squeeze(1) == best).float()
        advantages = torch.zeros(len(x))
        for number in group.unique():
            members = group == number
            advantages[members] = normalised(rewards[members])
        return 1 - (advantages * log_p.gather(1, tried).squeeze(1)).mean()

    x = torch.randn(SAMPLES + 2000, 6)
    group = torch.randint(0, GROUPS, (len(x),))
    best = (x @ torch.randn(6, 3)).argmax(1)
    model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    data = TensorDataset(x[:SAMPLES], group[:SAMPLES], best[:SAMPLES])
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    for inputs, numbers, right in run.steps(loader, model=model, optimizer=optimizer):
        loss = criterion(inputs, numbers, right)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float((model(x[SAMPLES:]).argmax(1) != best[SAMPLES:]).float().mean())
