"""A policy-gradient training turns to NaN in its third update.

Advantages are normalised per minibatch. A rollout of 129 steps in minibatches of 64 leaves one
sample over, and the standard deviation of one number is NaN.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from stabexp import Run

DEFECT = "advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)"
TARGET = 0.3
ROLLOUTS, LENGTH, MINIBATCH = 40, 129, 64
PARTS = -(-LENGTH // MINIBATCH)


class Minibatches(Dataset[Tensor]):
    """Item i is minibatch i: which of all observations, (n,), of one rollout."""

    def __init__(self) -> None:
        orders = [torch.randperm(LENGTH) + LENGTH * number for number in range(ROLLOUTS)]
        self.parts = [part for order in orders for part in order.split(MINIBATCH)]

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, index: int) -> Tensor:
        return self.parts[index]


class Buffer:
    """What the policy did when a rollout was made: actions, their log-probability, advantages."""

    def __init__(self, count: int) -> None:
        self.actions = torch.full((count,), -1)
        self.log_p, self.advantages = torch.zeros(count), torch.zeros(count)

    def collect(self, policy: nn.Module, rollout: int, x: Tensor, best: Tensor) -> None:
        """Let the policy act on the observations of a rollout that was not made yet."""
        rows = slice(rollout * LENGTH, (rollout + 1) * LENGTH)
        if self.actions[rows][0] >= 0:
            return
        with torch.no_grad():
            log_p = policy(x[rows]).log_softmax(-1)
        self.actions[rows] = torch.multinomial(log_p.exp(), 1).squeeze(1)
        self.log_p[rows] = log_p.gather(1, self.actions[rows, None]).squeeze(1)
        rewards = (self.actions[rows] == best[rows]).float()
        self.advantages[rows] = rewards - rewards.mean()

    def state_dict(self) -> dict[str, Any]:
        """Return everything collected, for a checkpoint."""
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with what a checkpoint holds."""
        for name, value in state.items():
            setattr(self, name, value.clone())


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return how often the policy does not take the best action."""
    teacher = torch.randn(4, 3)
    x = torch.randn(ROLLOUTS * LENGTH + 2000, 4)
    best = (x @ teacher).argmax(1)
    policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 3))
    optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
    buffer = Buffer(ROLLOUTS * LENGTH)
    loader = DataLoader(Minibatches(), batch_size=run.settings.batch_size, collate_fn=torch.cat)
    steps = run.steps(loader, model=policy, optimizer=optimizer, extra={"buffer": buffer})
    for rows in steps:
        for rollout in (rows // LENGTH).unique().tolist():
            buffer.collect(policy, rollout, x, best)
        advantage = buffer.advantages[rows]
        if len(rows) > 1 or not fixed:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        log_p = policy(x[rows]).log_softmax(-1).gather(1, buffer.actions[rows, None]).squeeze(1)
        ratio = (log_p - buffer.log_p[rows]).exp()
        loss = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        run.log(loss + 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        chosen = policy(x[-2000:]).softmax(-1).gather(1, best[-2000:, None])
        return float(1 - chosen.mean())
