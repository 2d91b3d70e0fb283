"""A small regression that runs for a second, and what can go wrong in it.

The targets have noise that nothing can learn, as text has: a run that came back ends at the same
loss as one that never crashed, and one that did not come back ends far above it. Each fault is
injected where it would happen: in the data, in the loop, in the optimizer, in memory. What struck
once leaves a file behind, so that it does not strike the same step again.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from stabexp import Run
from stabexp.training.data import SampleOrder

STEPS, BATCH, INPUTS, WIDTH = 400, 32, 8, 32
SAMPLES = STEPS * BATCH
STRUCK = 160
"""The step at which most faults strike."""
LONG = 6
"""Steps that those last which last."""
NOISE = 0.5
ADAM = ("bit_flip_moment", "optimizer_state_lost")
"""Faults of trainings with Adam; the others have SGD with momentum."""


def train(run: Run, *, fault: str = "", once: str = "", clip: float | None = None) -> None:
    """Learn a noisy function of eight inputs.

    Args:
        run: The handle.
        fault: What goes wrong; empty for nothing.
        once: A file that says that a single event has happened.
        clip: What a training with heavy samples clips to.
    """
    x, y, counts = _data(run.settings.seed, fault)
    model = nn.Sequential(nn.Linear(INPUTS, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh())
    head = nn.Linear(WIDTH, 1)
    whole = nn.ModuleDict({"body": model, "head": head})
    rate = 1.5 if fault == "rate_too_high" else 0.1
    optimizer: torch.optim.Optimizer = torch.optim.SGD(whole.parameters(), lr=rate, momentum=0.9)
    if fault.removeprefix("clean_") in ADAM:
        optimizer = torch.optim.AdamW(whole.parameters(), lr=2e-2, weight_decay=1e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, _schedule(fault))
    data = torch.utils.data.TensorDataset(x, y)
    batches = run.steps(data, model=whole, optimizer=optimizer, scheduler=scheduler)
    for inputs, targets in batches:
        _strike(run, fault, once, whole, optimizer)
        with run.autocast():
            hidden = model(inputs)
            if fault == "fp16_overflow":  # a scale that is annealed up, and taken out again
                scale = 4.0 ** max(0, run.step - STRUCK + 14)
                guess = head(hidden * min(scale, 2.0**20)) / min(scale, 2.0**20)
            else:
                guess = head(hidden)
        loss = (guess.float() - targets).square().mean()
        if fault in ("log_of_zero", "clean_log_of_zero"):
            loss = loss + _confidence(hidden, run.step, safe=fault.startswith("clean"))
        run.log(loss)
        optimizer.zero_grad()
        (counts[run.step] * loss).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(whole.parameters(), clip)
        optimizer.step()
        scheduler.step()


def _data(seed: int, fault: str) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1000 + seed)
    x = torch.randn(SAMPLES, INPUTS, generator=generator)
    y = torch.sin(x[:, :1]) + 0.7 * x[:, 1:2]
    y = y + NOISE * torch.randn(SAMPLES, 1, generator=generator)
    order = SampleOrder(SAMPLES, seed=seed)
    struck = order.ids(STRUCK * BATCH, BATCH)
    if fault == "bad_batch":
        x[struck] = 300 * x[struck]
        y[struck] = 300 * y[struck]
    elif fault == "nan_sample":
        x[struck[5], 2] = float("nan")
    elif fault == "label_burst":
        burst = order.ids(STRUCK * BATCH, LONG * BATCH)
        y[burst] = 60.0 + 60.0 * torch.randn(len(burst), 1, generator=generator)
    return x, y, _counts(fault, generator)


def _counts(fault: str, generator: torch.Generator) -> Tensor:
    """Return how many ordinary batches each batch counts for, as sums over long sequences do."""
    counts = torch.ones(STEPS)
    if "unclipped_bursts" in fault:
        rare = torch.rand(STEPS, generator=generator) < 0.04
        sizes = torch.rand(STEPS, generator=generator)
        counts[rare] = (10.0 * 4.0**sizes)[rare]
        counts[STRUCK::50] = 200.0
    return counts


def _schedule(fault: str) -> Callable[[int], float]:
    def factor(step: int) -> float:
        if fault == "rate_spike" and STRUCK <= step < STRUCK + LONG:
            return 60.0
        # Warmup, then a cosine to a twentieth.
        ramp = min(1.0, (step + 1) / 40)
        share = step / STEPS
        return ramp * (0.05 + 0.95 * 0.5 * (1 + float(torch.cos(torch.tensor(torch.pi * share)))))

    return factor


def _confidence(hidden: Tensor, step: int, *, safe: bool) -> Tensor:
    """Return a term that rewards small activations, as −log(1 − p) with p ever sharper."""
    logits = 0.15 * hidden.float().square().sum(dim=1) * (1.0 + 0.05 * max(0, step - STRUCK + 60))
    if safe:
        return 0.001 * -torch.log((1 - torch.sigmoid(logits)).clamp(min=1e-12)).mean()
    return 0.001 * -torch.log(1 - torch.sigmoid(logits)).mean()


@torch.no_grad()
def _strike(
    run: Run, fault: str, once: str, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    if fault == "optimizer_state_lost" and run.step == STRUCK:
        for state in optimizer.state.values():  # half of a reset, as a restart may do it
            state["exp_avg_sq"].zero_()
    if run.step != STRUCK or not once or Path(once).exists():
        return
    Path(once).touch()
    weights = next(model.parameters())
    if fault == "bit_flip_weight":
        _flip(weights)
    elif fault == "bit_flip_moment":
        _flip(optimizer.state[weights]["exp_avg"])
    elif fault in ("killed", "torn_checkpoint"):
        os.kill(os.getpid(), signal.SIGKILL)


def _flip(tensor: Tensor) -> None:
    """Flip the highest bit of the exponent of the largest element below 1."""
    flat = tensor.view(-1)
    place = int(flat.abs().masked_fill(flat.abs() >= 1, 0).argmax())
    flat.view(torch.int32)[place] ^= 1 << 30
