"""A plain loop under an instrument, and the table that faults are entered in.

The line of a fault is the one that ends in `# here`.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from stabexp.instruments.base import Watched
from stabexp.instruments.locate import Locate

IDS = (20, 21, 22, 23)


class Net(nn.Sequential):
    """A linear layer, then whatever is to be tested."""

    def __init__(self, *rest: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(6, 6)
        for module in rest:
            self.tested = module


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A small training with one fault, and how it must be located."""

    name: str
    step: Callable[..., Any]
    """Makes one update from (net, optimizer, batch, log)."""
    model: Callable[[], nn.Module]
    expected: dict[str, Any]
    source: str


def marked_line(item: Any) -> str:
    """Return "file.py:31" for the line of a function or class that ends in `# here`; "" if none."""
    lines, first = inspect.getsourcelines(item)
    marked = [n for n, line in enumerate(lines, first) if line.rstrip().endswith("# here")]
    file = inspect.getsourcefile(item)
    assert file is not None
    return f"{file.rpartition('/')[2]}:{marked[0]}" if marked else ""


class Table:
    """Faults by decorator."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def loss(self, operation: str, reason: str, phase: str = "forward", **more: Any) -> Any:
        """Enter a function (net, batch) → loss."""

        def enter(function: Callable[..., Any]) -> Any:
            def step(net: Any, optimizer: Any, batch: Any, log: Any) -> None:
                optimizer.zero_grad()
                loss = function(net, batch)
                log(loss)
                loss.backward()
                optimizer.step()

            self._add(function, step, Net, operation, reason, phase, {"module": "", **more})
            return function

        return enter

    def module(self, operation: str, reason: str, phase: str = "forward", **more: Any) -> Any:
        """Enter a module that stands behind a linear layer; the loss is the mean of its output."""

        def enter(kind: type[nn.Module]) -> Any:
            def step(net: Any, optimizer: Any, batch: Any, log: Any) -> None:
                optimizer.zero_grad()
                loss = net(batch).float().mean()
                log(loss)
                loss.backward()
                optimizer.step()

            more.setdefault("module", "tested")
            self._add(kind, step, lambda: Net(kind()), operation, reason, phase, more)
            return kind

        return enter

    def step(self, operation: str, reason: str, phase: str, **more: Any) -> Any:
        """Enter a function that makes a whole update: (net, optimizer, batch, log)."""
        model = more.pop("model", Net)

        def enter(function: Callable[..., Any]) -> Any:
            self._add(function, function, model, operation, reason, phase, more)
            return function

        return enter

    def _add(
        self,
        item: Any,
        step: Any,
        model: Any,
        operation: str,
        reason: str,
        phase: str,
        more: dict[str, Any],
    ) -> None:
        place = more.pop("source_of", item)
        expected = {"operation": operation, "reason": reason, "phase": phase, **more}
        self.faults.append(
            Fault(
                name=item.__name__,
                step=step,
                model=model,
                expected=expected,
                source=marked_line(place),
            )
        )


def batch_of(step: int) -> torch.Tensor:
    """Return four samples of six numbers."""
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(step))


@contextmanager
def quiet() -> Iterator[None]:
    """Leave out the warnings that faulty user code gives."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def train(
    step: Callable[..., Any],
    net: nn.Module,
    *,
    steps: int = 1,
    optimizer: Any = None,
    instrument: Any = None,
    batches: Callable[[int], Any] = batch_of,
    ids: Sequence[int] = IDS,
    logged: list[torch.Tensor] | None = None,
    extra: dict[str, Any] | None = None,
) -> Any:
    """Train under an instrument, as the run does, and return what it found."""
    optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=0.01)
    instrument = instrument or Locate()
    instrument.attach(Watched(model=net, optimizer=optimizer, extra=extra or {}))

    def log(loss: torch.Tensor) -> None:
        instrument.logged(loss)
        if logged is not None:
            logged.append(loss.detach().clone())

    try:
        with quiet():
            for index in range(steps):
                batch = batches(index)
                instrument.batch_begins(index, ids, batch)
                try:
                    step(net, optimizer, batch, log)
                finally:
                    instrument.batch_ends()
                instrument.update_ends(index)
    finally:
        instrument.detach()
    return instrument.findings()
