"""A loop of one's own that learns digits, clean or with one mistake that people make.

A perceptron with dropout and batch normalisation, SGD or Adam, a warm-up, clipping, two
micro-batches to an update, and float16 or bfloat16 where asked. `mistake` plants exactly one.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LambdaLR,
    LRScheduler,
    OneCycleLR,
    StepLR,
)
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run
from stabexp.tasks.digits import digits

BATCH, ACCUMULATE, EPOCHS = 16, 2, 4
UPDATES = EPOCHS * (1797 // (BATCH * ACCUMULATE))


def samples(mistake: str) -> TensorDataset:
    """Return pixels (64,), standardised, and labels () of 1,797 images."""
    images, labels = digits()
    pixels, labels = images.flatten(1).clone(), labels.clone()
    if mistake == "sorted":
        order = labels.argsort()
        return TensorDataset(pixels[order], labels[order])
    if mistake == "bytes":
        return TensorDataset((pixels * 255).round(), labels)
    if mistake == "labels from one":
        labels += 1
    if mistake == "nan pixels":
        pixels[::7, 10] = float("nan")
    if mistake == "duplicates":
        pixels, labels = pixels[:200].repeat(8, 1), labels[:200].repeat(8)
    if mistake == "blank images":
        pixels[::5] = 0.0
    return TensorDataset(pixels, labels)


def network(mistake: str) -> nn.Sequential:
    """Return a classifier of 64 pixels."""
    made = nn.Sequential(
        nn.Linear(64, 64),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
    if mistake == "wild head":
        nn.init.normal_(made[6].weight, std=5.0)
    if mistake == "dead rectifiers":
        nn.init.constant_(made[4].bias, -5.0)
    if mistake == "frozen":
        for layer in (made[0], made[4], made[6]):
            layer.weight.requires_grad_(False)
    if mistake == "frozen norm in training mode":
        for module in (made[0], made[1]):
            module.requires_grad_(False)
    if mistake == "evaluation mode":
        made.eval()
    return made


def schedule(optimizer: torch.optim.Optimizer, mistake: str) -> LRScheduler:
    """Return a warm-up of 20 updates, unless it is the mistake."""
    if mistake == "one cycle too short":
        return OneCycleLR(optimizer, max_lr=0.05, total_steps=UPDATES // ACCUMULATE)
    if mistake == "steps of epochs":
        return StepLR(optimizer, step_size=3, gamma=0.1)
    if mistake == "cosine of epochs":
        return CosineAnnealingLR(optimizer, T_max=10)
    if mistake == "rate zero":
        return LambdaLR(optimizer, lambda step: step // 1000)
    warmup = 10 * UPDATES if mistake == "warm-up too long" else 20
    return LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / warmup))


def some_lost(rows: list[tuple[Tensor, Tensor]]) -> Any:
    """Collate a batch without the samples that cannot be read."""
    kept = [row for row in rows if row[0].sum() % 2 < 1.5] or rows[:1]
    return torch.stack([row[0] for row in kept]), torch.stack([row[1] for row in kept])


def loss_of(model: nn.Module, pixels: Tensor, labels: Tensor, mistake: str) -> Tensor:
    """Return the mean cross-entropy."""
    logits = model(pixels)
    if mistake == "overflow":
        logits = logits * 2.0**16 / 2.0**16
    if mistake == "softmax twice":
        logits = logits.softmax(-1)
    if mistake == "detached":
        return F.cross_entropy(logits.detach(), labels)
    return F.cross_entropy(logits, labels)


def train(
    run: Run, *, mistake: str = "", half: str = "", adam: bool = False, epochs: int = EPOCHS
) -> None:
    """Train on digits."""
    if mistake == "ranks":
        os.environ["WORLD_SIZE"] = "4"
    try:
        _train(run, mistake, half, adam, epochs)
    finally:
        if mistake == "ranks":
            del os.environ["WORLD_SIZE"]


def optimizer_of(model: nn.Sequential, mistake: str, *, adam: bool) -> torch.optim.Optimizer:
    """Return the optimizer of what is trained."""
    trained = [p for p in model.parameters() if p.requires_grad]
    if mistake == "head left out":
        trained = [p for p in trained if p.shape[0] != 10]
    if adam:
        return torch.optim.AdamW(trained, lr=0.3 if mistake == "Adam at 0.3" else 1e-3)
    return torch.optim.SGD(trained, lr=0.05, momentum=0.9)


def loader_of(mistake: str) -> DataLoader[Any]:
    """Return shuffled batches, unless their order is the mistake."""
    data = samples(mistake)
    in_a_row = range(len(data)) if mistake == "sorted" else None
    return DataLoader(
        data,
        batch_size=BATCH,
        shuffle=in_a_row is None,
        sampler=in_a_row,
        collate_fn=some_lost if mistake == "samples lost" else None,
        drop_last=True,
    )


def _train(run: Run, mistake: str, half: str, adam: bool, epochs: int) -> None:
    kind = {"": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[half]
    model = network(mistake)
    optimizer = optimizer_of(model, mistake, adam=adam)
    if mistake == "head replaced":
        model[6] = nn.Linear(64, 10)
    scheduler = schedule(optimizer, mistake)
    scaled = half == "fp16" and mistake != "no scaler"
    scaler = torch.amp.GradScaler("cpu", enabled=scaled, init_scale=1024.0)
    steps = run.steps(
        loader_of(mistake),
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        scaler=scaler,
        epochs=epochs,
    )
    for number, (pixels, labels) in enumerate(steps, start=1):
        due = number % ACCUMULATE == 0
        early = mistake == "update before backward"
        if early and due:
            scaler.step(optimizer)
            scheduler.step()
            optimizer.zero_grad()
        with torch.autocast("cpu", dtype=kind, enabled=bool(half)):
            loss = loss_of(model, pixels, labels, mistake)
        run.log(loss)
        if mistake == "clip before backward" and due:
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.scale(loss if mistake == "not divided" else loss / ACCUMULATE).backward()
        if due and not early:
            update(model, optimizer, scheduler, scaler, mistake)


def update(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scheduler: LRScheduler,
    scaler: torch.amp.GradScaler,
    mistake: str,
) -> None:
    """Unscale, clip, step, clear: in this order, unless it is the mistake."""
    if mistake == "cleared before the update":
        optimizer.zero_grad()
    if mistake != "clip before unscale":
        scaler.unscale_(optimizer)
    if mistake not in ("clip after the update", "clip before backward"):
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    if mistake == "schedule first":
        scheduler.step()
    scaler.step(optimizer)
    if mistake == "step twice":
        optimizer.step()
    scaler.update()
    if mistake == "clip after the update":
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    if mistake != "not cleared":
        optimizer.zero_grad()
    if mistake != "schedule first":
        scheduler.step()
