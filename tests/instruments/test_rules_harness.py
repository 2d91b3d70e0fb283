"""A small stand-in for `Run`: it drives the rules around a plain loop, in the documented order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from stabexp.instruments.base import Watched
from stabexp.instruments.rules import Rules


class Handle:
    """What a training function sees: `steps` and `log`."""

    def __init__(
        self,
        rules: Rules | None,
        *,
        updates: int = 6,
        ids: Callable[[int], Sequence[int]] | None = None,
        first: int = 0,
    ) -> None:
        self.rules = rules
        self.updates = updates
        self.first = first
        self._ids = ids
        self.losses: list[float] = []

    def log(self, loss: Tensor) -> None:
        """Record the loss of the batch."""
        self.losses.append(float(loss.detach()))
        if self.rules is not None:
            self.rules.logged(loss)

    def steps(
        self,
        data: Any,
        *,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batch_size: int = 16,
        accumulate: int = 1,
        scaler: Any = None,
        scheduler: Any = None,
    ) -> Iterator[Any]:
        """Yield batches until `updates` updates were made or skipped."""
        rules = self.rules or Nothing()
        size = len(data)
        rules.attach(
            Watched(
                model=model,
                optimizer=optimizer,
                scaler=scaler,
                scheduler=scheduler,
                accumulate=accumulate,
                dataset_size=size,
            )
        )
        stepped = [False]
        hook = optimizer.register_step_post_hook(lambda *_: stepped.__setitem__(0, True))
        step, number = self.first, 0
        try:
            while step < self.first + self.updates:
                start = number * batch_size
                ids = (
                    list(self._ids(number))
                    if self._ids
                    else [i % size for i in range(start, start + batch_size)]
                )
                batch = _gather(data, ids)
                rules.batch_begins(step, ids, batch)
                try:
                    yield batch
                finally:
                    rules.batch_ends()
                number += 1
                if stepped[0]:
                    rules.update_ends(step)
                    stepped[0] = False
                    step += 1
        finally:
            hook.remove()
            rules.detach()


def _gather(data: Any, ids: Sequence[int]) -> tuple[Tensor, ...]:
    if isinstance(data, TensorDataset):
        return tuple(data[ids])
    return tuple(torch.stack(list(column)) for column in zip(*(data[i] for i in ids), strict=True))


class Nothing:
    """No instrument."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


def found(train: Callable[[Handle], None], **kwargs: Any) -> dict[str, dict[str, Any]]:
    """Return what the rules say about a training function, by rule."""
    handle_keys = {"updates", "ids", "first"}
    rules = Rules(**{k: v for k, v in kwargs.items() if k not in handle_keys})
    handle = Handle(rules, **{k: v for k, v in kwargs.items() if k in handle_keys})
    torch.manual_seed(0)
    train(handle)
    assert rules.failures == {}
    findings = rules.findings()
    assert len({item["rule"] for item in findings}) == len(findings)
    return {item["rule"]: item for item in findings}


def regression(n: int = 512, features: int = 6, *, column: bool = True) -> TensorDataset:
    """Return standard normal features and a linear target with noise."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(n, features, generator=generator)
    y = x @ torch.randn(features, 1, generator=generator)
    y = y + 0.1 * torch.randn(n, 1, generator=generator)
    return TensorDataset(x, y if column else y[:, 0])


def classes(n: int = 512, features: int = 6, kinds: int = 5) -> TensorDataset:
    """Return features around a centre per class, and the class."""
    generator = torch.Generator().manual_seed(2)
    centres = torch.randn(kinds, features, generator=generator)
    y = torch.randint(0, kinds, (n,), generator=generator)
    return TensorDataset(centres[y] + 0.5 * torch.randn(n, features, generator=generator), y)


def network(inputs: int = 6, outputs: int = 1, *, dropout: float = 0.0) -> nn.Sequential:
    """Return a small network."""
    return nn.Sequential(
        nn.Linear(inputs, 32), nn.ReLU(), nn.Dropout(dropout), nn.Linear(32, outputs)
    )
