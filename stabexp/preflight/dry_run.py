"""Before a training begins, a few updates of it are tried, closely watched and not recorded.

It is the same function with the same handle; only the handle has no run directory, no MLflow and no
detectors, and every instrument attached. Random streams, threads and determinism of the calling
process are afterwards what they were.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

import stabexp
from stabexp.errors import NotReplayableError, TrainingError
from stabexp.instruments import build
from stabexp.instruments import rule_base as rules
from stabexp.preflight.checks import Checks
from stabexp.preflight.reasons import WHY, without_consequences
from stabexp.preflight.result import Finding, Preflight
from stabexp.state.random_streams import isolated_streams
from stabexp.tracking.muted import muted
from stabexp.training.execute import execute
from stabexp.training.run import Run
from stabexp.training.settings import Program, RunSettings

UPDATES = 8
"""Updates of a dry run: some rules want to see a thing three, some five times."""
WITHOUT_UPDATE = 256
"""Batches without an update after which the loop is taken for one that never updates."""


class DryRun(Run):
    """A run that records nothing, and knows how long the training means to go on."""

    def __init__(
        self, settings: RunSettings, checks: Checks, *, updates: int, **others: Any
    ) -> None:
        instruments = [checks, *build({"locate": {}}).values()]
        super().__init__(settings, until=updates, instruments=instruments, judged=False, **others)
        self._instruments = instruments
        self._epochs: int | None = None
        self._idle = 0
        checks.watch(self)

    def steps(self, data: Any, *, epochs: int | None = None, **others: Any) -> Iterator[Any]:
        self._epochs = epochs
        return super().steps(data, epochs=epochs, **others)

    def end_step(self) -> bool:
        step = self.step
        goes_on = super().end_step()
        self._idle = 0 if self.step > step else self._idle + 1
        if self._idle >= max(WITHOUT_UPDATE, 2 * self.settings.accumulate):
            raise TrainingError(f"{self._idle} batches came without an update")
        return goes_on

    def plan(self) -> tuple[int, int] | None:
        """Return how many updates the whole training makes, and how many in one pass; or None."""
        samples, size = self._ledger.largest[0], self.dataset_size
        per_pass = math.ceil(size / samples) if size and samples else 0
        totals = [self.planned_steps] if self.planned_steps else []
        if self._epochs and per_pass:
            totals.append(self._epochs * per_pass)
        return (min(totals), per_pass) if totals else None

    @property
    def not_finite(self) -> Mapping[str, Any] | None:
        """Where the first number that is none was made, None when all were numbers."""
        found: Mapping[str, Any] | None = self._instruments[1].findings()
        return found


def examine(program: Program, *, updates: int = UPDATES) -> Preflight:
    """Try a training for a few updates and return what is wrong with it.

    Args:
        program: The training.
        updates: How many updates to make; what takes longer to show is not found.

    Raises:
        NotReplayableError: If the loop is one that stabexp cannot watch.
    """
    started = time.perf_counter()
    checks = Checks()
    run = DryRun(program.settings, checks, updates=updates)
    raised: TrainingError | None = None
    with _left_as_found():
        try:
            execute(program, run)
        except NotReplayableError:
            raise
        except TrainingError as error:
            raised = error
        seen = [_told(finding) for finding in checks.found()]
    if (number := _number(run)) is not None:
        seen.append(number)
    if raised is not None:
        seen.append(_raised(raised, run.step))
    return Preflight(
        name=program.settings.name,
        updates=run.step,
        seconds=time.perf_counter() - started,
        findings=without_consequences(seen),
        modules=checks.ranges(),
        unexamined=checks.unseen(),
    )


@contextlib.contextmanager
def _left_as_found() -> Iterator[None]:
    """Leave the process as it was, and keep what the training prints apart from the findings."""
    threads = torch.get_num_threads()
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    cudnn = torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic
    try:
        with (
            muted(),
            isolated_streams(),
            contextlib.redirect_stdout(sys.stderr),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = cudnn


def _told(found: rules.Finding) -> Finding:
    return Finding(
        name=found.rule,
        where=found.place,
        what=found.detail,
        why=WHY[found.rule],
        change=found.remedy,
        certain=found.strength == "certain",
        step=found.step,
        samples=found.samples,
    )


def _number(run: DryRun) -> Finding | None:
    found = run.not_finite
    if found is None or found["harmless"]:
        return None
    where = " ".join(filter(None, (found["source"], f"({found['code']})" if found["code"] else "")))
    return Finding(
        name="number_not_finite",
        where=where or found["module"] or found["operation"],
        what=f"{found['operation']} made the first number that is {found['kind']}, and it reached "
        "the "
        f"{found['reached']}: {found['explanation']}",
        why=WHY["number_not_finite"],
        change=found["remedy"],
        step=found["step"],
        samples=tuple(found["sample_ids"] or ())[:16],
    )


_RAISED: tuple[tuple[str, str, str], ...] = (
    (
        "does not require grad",
        "loss_without_graph",
        "compute the loss from the model's output without .detach(), .item(), torch.no_grad() or a "
        "tensor made anew, and leave something to train: requires_grad",
    ),
    (
        "came without an update",
        "no_update",
        "call optimizer.step() on the optimizer given to run.steps",
    ),
    (
        "without making a step",
        "no_update",
        "loop over run.steps(...) and call optimizer.step() in it",
    ),
    (
        "out of memory",
        "training_raises",
        "take a smaller batch, and accumulate to keep the effective one",
    ),
)
"""Part of a message, what it is called, what to change."""


def _raised_at(error: BaseException) -> str:
    """Return "train.py:31", the deepest line of an error that is neither a library's nor ours."""
    own = str(Path(stabexp.__file__).parent)
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [
        frame
        for frame in frames
        if "site-packages" not in frame.filename
        and not frame.filename.startswith((own, "<", sys.base_prefix))
    ]
    frame = (theirs or list(frames))[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


def _raised(error: TrainingError, step: int) -> Finding:
    cause = error.__cause__
    text = f"{type(cause).__name__}: {cause}" if cause is not None else str(error)
    first = text.strip().splitlines()[0]
    where = _raised_at(cause) if cause is not None else "the training function"
    known = (entry[1:] for entry in _RAISED if entry[0] in text)
    name, change = next(known, ("training_raises", "mend the error; the training ends with it too"))
    return Finding(name=name, where=where, what=first, why=WHY[name], change=change, step=step)
