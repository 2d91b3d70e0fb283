"""A sparse autoencoder reconstructs worse than it should: its encoder never moves.

The encoder starts as the transpose of the decoder, which is not contiguous. The optimizer's kernel
writes its result for such a tensor into a temporary copy. (The kernel is simulated; the real one
was the in-place addcdiv of a graphics backend.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "out = p if p.is_contiguous() else p.contiguous()"
TARGET = 0.18
SAMPLES = 12800


class Adam(torch.optim.Optimizer):
    """Adam, one tensor at a time."""

    def __init__(self, params: Iterable[Tensor], lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["steps"] = 0
                    state["mean"], state["square"] = torch.zeros_like(p), torch.zeros_like(p)
                state["steps"] += 1
                state["mean"].mul_(0.9).add_(p.grad, alpha=0.1)
                state["square"].mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
                mean = state["mean"] / (1 - 0.9 ** state["steps"])
                root = (state["square"] / (1 - 0.999 ** state["steps"])).sqrt() + 1e-8
                out = p if p.is_contiguous() else p.contiguous()
                out.addcdiv_(mean, root, value=-group["lr"])


class Autoencoder(nn.Module):
    """(batch, 20) → the same through 6 non-negative numbers."""

    def __init__(self, *, contiguous: bool) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(20, 6, bias=False), nn.Linear(6, 20)
        transposed = self.decoder.weight.detach().clone().t()
        self.encoder.weight = nn.Parameter(transposed.contiguous() if contiguous else transposed)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.decoder(torch.relu(self.encoder(x)))
        return result


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the share of the variance of other data that is left unexplained."""
    mixture = torch.randn(6, 20)
    x = torch.relu(torch.randn(SAMPLES + 2000, 6)) @ mixture
    x = x + 0.05 * torch.randn_like(x)
    model = Autoencoder(contiguous=fixed)
    optimizer = Adam(model.parameters(), lr=3e-3)
    loader = DataLoader(TensorDataset(x[:SAMPLES]), batch_size=run.settings.batch_size)
    for (inputs,) in run.steps(loader, model=model, optimizer=optimizer):
        loss = F.mse_loss(model(inputs), inputs)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float(F.mse_loss(model(x[SAMPLES:]), x[SAMPLES:]) / x[SAMPLES:].var())
