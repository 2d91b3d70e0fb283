"""Loaders of every kind over one small data set, and a loop that has everything in it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from torchdata.stateful_dataloader import StatefulDataLoader

from stabexp import Run

SIZE = 60


def table() -> TensorDataset:
    """Return the samples: inputs (8,) and targets (1,)."""
    stream = torch.Generator().manual_seed(0)
    x = torch.randn(SIZE, 8, generator=stream)
    return TensorDataset(x, x[:, :1] * x[:, 1:2])


class Augmented(Dataset[Any]):
    """Draws from all three global streams for every sample that is read."""

    def __init__(self) -> None:
        self.data = table()

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> Any:
        x, y = self.data[index]
        return x + 0.1 * torch.randn(8) + 0.01 * random.random() + 0.01 * np.random.rand(), y


class Stream(IterableDataset[Any]):
    """Shuffles when a pass begins."""

    def __iter__(self) -> Iterator[Any]:
        data = table()
        for index in torch.randperm(SIZE).tolist():
            yield data[index]


class Shuffling(IterableDataset[Any]):
    """Shuffles through a buffer, drawing from the global stream for every sample."""

    def __iter__(self) -> Iterator[Any]:
        data = table()
        buffer = [data[index] for index in range(16)]
        for index in range(16, SIZE):
            place = int(torch.randint(16, ()))
            yield buffer[place]
            buffer[place] = data[index]
        yield from buffer


class Remembering(IterableDataset[Any]):
    """Says where it is, and can be told."""

    def __init__(self) -> None:
        self.at = self.begin = 0

    def __iter__(self) -> Iterator[Any]:
        self.at, self.begin = self.begin, 0
        return self.rest()

    def rest(self) -> Iterator[Any]:
        data = table()
        while self.at < SIZE:
            self.at += 1
            yield data[self.at - 1]

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.begin = state["at"]


class Plain:
    """No loader at all: an object that can be iterated again and again."""

    def __iter__(self) -> Iterator[Any]:
        x, y = table().tensors
        for start in range(0, SIZE, 8):
            yield {"x": x[start : start + 8], "y": y[start : start + 8]}


class Varying(Sampler[list[int]]):
    """Batches of 3 to 9 samples, drawn when a pass begins."""

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(SIZE).tolist()
        sizes = torch.randint(3, 10, (8,)).tolist()
        for size in sizes:
            yield [order.pop() for _ in range(size)]

    def __len__(self) -> int:
        return 8


class Lazy(Sampler[list[int]]):
    """Draws each batch when it is asked for, from what was not drawn yet."""

    def __iter__(self) -> Iterator[list[int]]:
        left = list(range(SIZE))
        while left:
            order = torch.randperm(len(left)).tolist()[:7]
            batch = [left[place] for place in order]
            left = [sample for sample in left if sample not in batch]
            yield batch

    def __len__(self) -> int:
        return 9


def generator(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


WORKERS: dict[str, Any] = {"num_workers": 2}
WEIGHTS = torch.arange(1.0, SIZE + 1)

LOADERS: dict[str, Callable[[], Any]] = {
    "dataset": table,
    "shuffled": lambda: DataLoader(Augmented(), 8, shuffle=True),
    "in a row": lambda: DataLoader(table(), 8),
    "last batch dropped": lambda: DataLoader(
        Augmented(), 8, sampler=WeightedRandomSampler(WEIGHTS, 60), drop_last=True
    ),
    "weighted": lambda: DataLoader(Augmented(), 8, sampler=WeightedRandomSampler(WEIGHTS, 50)),
    "weighted, own generator": lambda: DataLoader(
        table(), 8, sampler=WeightedRandomSampler(WEIGHTS, 50, generator=generator())
    ),
    "with replacement": lambda: DataLoader(
        Augmented(), 8, sampler=RandomSampler(range(SIZE), replacement=True, num_samples=40)
    ),
    "subset": lambda: DataLoader(Augmented(), 8, sampler=SubsetRandomSampler(range(5, 45))),
    "distributed": lambda: DataLoader(
        table(), 8, sampler=DistributedSampler(table(), num_replicas=1, rank=0)
    ),
    "batches of a sampler": lambda: DataLoader(
        Augmented(), batch_sampler=BatchSampler(SequentialSampler(range(SIZE)), 7, False)
    ),
    "varying batches": lambda: DataLoader(Augmented(), batch_sampler=Varying()),
    "lazily drawn batches": lambda: DataLoader(Augmented(), batch_sampler=Lazy()),
    "lazily drawn batches in workers": lambda: DataLoader(table(), batch_sampler=Lazy(), **WORKERS),
    "workers": lambda: DataLoader(
        table(), 8, sampler=WeightedRandomSampler(WEIGHTS, 50), **WORKERS
    ),
    "workers that draw": lambda: DataLoader(
        Augmented(), 8, sampler=WeightedRandomSampler(WEIGHTS, 50), **WORKERS
    ),
    "persistent workers": lambda: DataLoader(
        table(),
        8,
        sampler=WeightedRandomSampler(WEIGHTS, 50),
        persistent_workers=True,
        **WORKERS,
    ),
    "iterable": lambda: DataLoader(Stream(), 8),
    "iterable, not batched by the loader": lambda: DataLoader(Batches(), batch_size=None),
    "iterable in workers": lambda: DataLoader(Stream(), 8, **WORKERS),
    "iterable with a shuffle buffer": lambda: DataLoader(Shuffling(), 8),
    "any iterable": Plain,
    "stateful loader": lambda: StatefulDataLoader(Augmented(), 8, shuffle=True),
    "stateful loader, workers": lambda: StatefulDataLoader(table(), 8, shuffle=True, **WORKERS),
    "stateful loader, iterable": lambda: StatefulDataLoader(Stream(), 8),
    "stateful loader, iterable with a state": lambda: StatefulDataLoader(Remembering(), 8),
    "stateful loader, iterable with a state, workers": lambda: StatefulDataLoader(
        Remembering(), 8, **WORKERS
    ),
}

STREAMS = {name for name in LOADERS if "iterable" in name}
"""Loaders whose samples have no numbers."""


class Batches(IterableDataset[Any]):
    """Yields whole batches."""

    def __iter__(self) -> Iterator[Any]:
        x, y = table().tensors
        for order in torch.randperm(SIZE).split(8):
            yield x[order], y[order]


def network() -> nn.Module:
    """Return a small network whose steps depend on buffers and random numbers."""
    return nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1)
    )


def accumulating(make: Callable[[], Any], **options: Any) -> Callable[[Run], None]:
    """Return a training with dropout, batch norm, clipping, a schedule and two micro-batches."""

    def train(run: Run) -> None:
        model = network()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)
        steps = run.steps(make(), model=model, optimizer=optimizer, scheduler=scheduler, **options)
        for number, batch in enumerate(steps, 1):
            x, y = parts(batch)
            loss = nn.functional.mse_loss(model(x), y)
            run.log(loss)
            (loss / 2).backward()
            if number % 2 == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()

    return train


def parts(batch: Any) -> tuple[Tensor, Tensor]:
    """Return inputs and targets of a batch, whatever form it has."""
    x, y = batch.values() if isinstance(batch, dict) else batch
    return x, y
