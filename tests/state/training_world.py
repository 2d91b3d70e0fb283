"""A small training that draws on every kind of state; as a script it goes on from a checkpoint."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, lr_scheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from stabexp.state import CheckpointStore, capture, parameter_digest, restore, seed_everything

OPTIMIZERS = {
    "sgd": lambda p: SGD(p, lr=0.02),
    "momentum": lambda p: SGD(p, lr=0.02, momentum=0.9, nesterov=True),
    "adam": lambda p: Adam(p, lr=1e-2, amsgrad=True),
    "adamw": lambda p: AdamW(p, lr=1e-2, foreach=False),
    "adamw foreach": lambda p: AdamW(p, lr=1e-2, foreach=True),
    "adamw fused": lambda p: AdamW(p, lr=1e-2, fused=True),
    "adamw tensor rate": lambda p: AdamW(p, lr=torch.tensor(1e-2), foreach=False),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=1e-2),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-2, momentum=0.5, centered=True),
}
SCHEDULERS = {
    "none": lambda o: None,
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.9**step),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.05, total_steps=40),
    "plateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0, factor=0.5),
    "cosine restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=3),
    "sequential": lambda o: lr_scheduler.SequentialLR(
        o,
        [
            lr_scheduler.LinearLR(o, start_factor=0.1, total_iters=4),
            lr_scheduler.ExponentialLR(o, gamma=0.9),
        ],
        milestones=[4],
    ),
}


class Network(nn.Module):
    """Convolution (channels_last), BatchNorm, dropout, tied weights, a buffer that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.3)
        self.first = nn.Linear(16, 16, bias=False)
        self.second = nn.Linear(16, 16)
        self.second.weight = self.first.weight
        self.strided = nn.Parameter(torch.randn(16, 8).t())
        self.frozen = nn.Linear(3, 3).requires_grad_(False)
        self.register_buffer("running", torch.zeros(()), persistent=False)
        self.to(memory_format=torch.channels_last)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = self.drop(self.norm(self.conv(images)).relu()).flatten(1)
        self.running.mul_(0.9).add_(hidden.detach().mean())
        hidden = self.second(torch.tanh(self.first(hidden)))
        return ((hidden @ self.strided.t()) * (1 + self.running)).pow(2).mean()


class World:
    """All objects of one training; with `clear` False gradients pile up, a known fault."""

    def __init__(
        self,
        optimizer: str = "adamw",
        scheduler: str = "none",
        *,
        clear: bool = True,
        seed: int = 0,
    ) -> None:
        seed_everything(seed)
        self.model = Network()
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.scheduler = SCHEDULERS[scheduler](self.optimizer)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**4, growth_interval=3)
        self.average = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
        self.order = torch.Generator().manual_seed(seed)
        self.numbers = np.random.default_rng(seed)
        self.clear = clear
        self.digests: list[int] = []

    @property
    def objects(self):
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "scheduler": self.scheduler,
            "scaler": self.scaler,
            "average": self.average,
            "order": self.order,
            "numbers": self.numbers,
        }

    def train(self, steps: int) -> list[int]:
        """Run some steps; return the digest of all parameters after each."""
        for _ in range(steps):
            if self.clear:
                self.optimizer.zero_grad()
            images = torch.randn(4, 2, 4, 4, generator=self.order).to(
                memory_format=torch.channels_last
            )
            noise = random.random() + np.random.random() + self.numbers.random()
            loss = self.model(images + 0.1 * noise + 0.1 * torch.randn(()))
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            if isinstance(self.scheduler, lr_scheduler.ReduceLROnPlateau):
                self.scheduler.step(loss.item())
            elif self.scheduler is not None:
                self.scheduler.step()
            self.average.update_parameters(self.model)
            self.digests.append(self.digest())
        return self.digests[-steps:]

    def digest(self) -> int:
        state = [*self.model.parameters(), *self.model.buffers(), *self.average.parameters()]
        return int(parameter_digest(state))

    def capture(self, **extra):
        return capture(self.objects, extra=extra)

    def restore(self, snapshot) -> None:
        restore(snapshot, self.objects)


def main() -> None:
    """Continue in a new process: directory, step, steps to run; print the digests."""
    directory, step, steps, *kinds = sys.argv[1:]
    torch.set_num_threads(1)
    world = World(*kinds, seed=99)
    world.restore(CheckpointStore(Path(directory)).load(int(step)))
    print(*world.train(int(steps)))


if __name__ == "__main__":
    main()
