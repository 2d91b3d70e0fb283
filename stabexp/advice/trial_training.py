"""A short training that leaves nothing behind: everything it touches is put back bit for bit.

The training function is called once, as a replay calls it. What it says to MLflow goes nowhere, no
run is recorded, and afterwards model, optimizer, schedule, scaler and every random stream are what
they were before its first step: their hash says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from stabexp.advice.rates import OF_THE_RATE
from stabexp.errors import StabexpError
from stabexp.interventions import Intervention
from stabexp.records import Divergence, StepRecord
from stabexp.state.hashing import first_difference, state_hash
from stabexp.state.random_streams import isolated_streams
from stabexp.state.snapshot import Snapshot, capture, restore
from stabexp.tracking.muted import in_active_run, muted
from stabexp.training import Program, Run, execute


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a trial training showed."""

    records: tuple[StepRecord, ...]
    divergence: Divergence | None
    rates: tuple[float, ...]
    """What the loop's own schedule had for the first parameter group at each step."""
    configured: tuple[float, ...]
    """The configured rate of the first group of each optimizer."""
    optimizer: str
    """Class of the first optimizer."""
    looked: Any
    """What `look` made of the model."""
    state_hash: str
    """Of all that decides the next step: the same before the first step and after the end."""


def train_once(
    program: Program,
    interventions: tuple[Intervention, ...],
    *,
    steps: int,
    judged: bool = True,
    goes_on: Callable[[StepRecord], bool] = lambda record: True,
    look: Callable[[nn.Module], Any] = lambda model: None,
) -> Trained:
    """Train for up to `steps` steps and put everything back.

    Args:
        program: What to train; interventions of its own on the rate are left out.
        interventions: What to change.
        steps: How many steps at most.
        judged: Whether the program's detectors end it.
        goes_on: Told every record; False ends the training there.
        look: Called with the model once everything is put back.

    Raises:
        TrainingError: If the training function raised.
        StabexpError: If the state after the end could not be made that of before the first step.
    """
    own = program.settings
    kept = {name: dose for name, dose in own.interventions.items() if name not in OF_THE_RATE}
    settings = replace(own, interventions=kept, monitors={}, checkpoint_every=2**31)
    records: list[StepRecord] = []

    def on_step(record: StepRecord) -> None:
        records.append(record)
        if not goes_on(record):
            run.until = record.step + 1

    run = _Remembering(
        settings,
        interventions=interventions,
        until=steps,
        on_step=on_step,
        judged=judged,
    )
    with _process_as_it_was(), muted(active_run=in_active_run()):
        try:
            execute(replace(program, settings=settings), run)
        finally:
            digest = run.put_back()
    return Trained(
        records=tuple(records),
        divergence=run.divergence,
        rates=tuple(run.own_rates),
        configured=tuple(run.configured),
        optimizer=type(run.parts.optimizers[0]).__name__,
        looked=look(run.parts.model),
        state_hash=digest,
    )


class _Remembering(Run):
    """A run that remembers the state before its first step, and what its own schedule does."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.own_rates: list[float] = []
        self.configured: list[float] = []
        self._first: Snapshot | None = None

    def begin_step(self) -> None:
        if self._first is None:
            self._first = capture(self.parts.objects)
            groups = [optimizer.param_groups[0] for optimizer in self.parts.optimizers]
            self.configured = [float(group.get("initial_lr", group["lr"])) for group in groups]
        super().begin_step()

    @contextmanager
    def batch(self, batch: Any) -> Iterator[Any]:
        if len(self.own_rates) == self.step:
            self.own_rates.append(float(self.parts.optimizers[0].param_groups[0]["lr"]))
        with super().batch(batch) as changed:
            yield changed

    def put_back(self) -> str:
        """Make everything what it was before the first step, and return the hash of it."""
        if self._first is None:
            return ""  # the training function raised before
        return put_back(self._first, self.parts.objects)


def put_back(before: Snapshot, objects: Mapping[str, Any]) -> str:
    """Make objects and random streams what they were, and return the hash of it.

    Raises:
        StabexpError: If something is not what it was, bit for bit.
    """
    restore(before, objects, optional=("scaler",))
    after = capture(objects)
    wanted, found = state_hash(before), state_hash(after)
    if wanted != found:
        raise StabexpError(
            f"the state could not be put back exactly: {first_difference(before, after)}; "
            "build model and optimizer anew before they are trained"
        )
    return found


@contextmanager
def _process_as_it_was() -> Iterator[None]:
    """Leave the process's threads, determinism and random streams as they were."""
    threads = torch.get_num_threads()
    strict = torch.are_deterministic_algorithms_enabled()
    only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    cudnn = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    cublas = os.environ.get(_CUBLAS)
    try:
        with isolated_streams():
            yield
    finally:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        now = torch.are_deterministic_algorithms_enabled()
        if (now, torch.is_deterministic_algorithms_warn_only_enabled()) != (strict, only_warns):
            torch.use_deterministic_algorithms(strict, warn_only=only_warns)
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = cudnn
        if cublas is None:
            os.environ.pop(_CUBLAS, None)
        else:
            os.environ[_CUBLAS] = cublas


_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"
