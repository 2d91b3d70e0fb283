"""What the batches of a step gave, the record that is made of them, and what detectors make of it.

The live run, its replays and every trial are judged by the same detectors over the same records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from stabexp import detectors as detection
from stabexp.errors import TrainingError
from stabexp.records import Divergence, StepRecord
from stabexp.training.boundary import Boundary
from stabexp.training.measured import step_record

PATIENCE = 1024
"""Batches without an update after which a loop is taken for one that never updates."""

HISTORY = 100
"""Losses and gradient norms that the emergency snapshot keeps (source row A1)."""


class StepLedger:
    """The open step of a run, and the records of those before it."""

    def __init__(
        self,
        detectors: Sequence[detection.Detector],
        *,
        before: Sequence[StepRecord],
        on_step: Callable[[StepRecord], None] | None,
    ) -> None:
        """`before` are the records before the first step; `on_step` is told every new one."""
        self._detectors = detectors
        self._on_step = on_step
        self._window = max(detection.history_needed(detectors), HISTORY)
        self._losses: list[Tensor] = []
        self._metrics: dict[str, Tensor] = {}
        self._ids: list[int] = []
        self._samples = self._rows = 0
        self._clock = time.perf_counter()
        self.history: list[StepRecord] = list(before)
        self.batches = 0
        """(Micro-)batches of the open step so far."""
        self.largest = (0, 0)
        """Samples and batches of the largest step so far."""

    @property
    def logged(self) -> bool:
        """Whether a loss was logged in the open step."""
        return bool(self._losses)

    def log(self, loss: Tensor, metrics: dict[str, Tensor]) -> None:
        """Add the loss of a batch; copied, for a loop may go on to divide it in place."""
        self._losses.append(loss.clone())
        self._metrics |= {name: value.clone() for name, value in metrics.items()}

    def add_batch(self, ids: Sequence[int], samples: int, rows: int) -> None:
        """Add a batch that is used now.

        Args:
            ids: Its samples in the dataset.
            samples: How many were read for it, 0 when that is not known.
            rows: Length of its first tensor, 0 without one: a collator may have dropped some.
        """
        self._ids += ids
        self._samples += samples or rows
        self._rows += rows
        self.batches += 1

    def record(
        self, boundary: Boundary, scaler: torch.amp.GradScaler | None, *, step: int, position: int
    ) -> StepRecord:
        """Close the step: fetch what was measured, in one host sync, and tell the record.

        Raises:
            TrainingError: If no loss was logged.
        """
        if not self._losses:
            raise TrainingError(
                f"step {step}: run.log(loss) was not called, so the step cannot be judged"
            )
        loss = self._losses[0] if len(self._losses) == 1 else torch.stack(self._losses).mean()
        measured = boundary.fetch(loss, self._metrics)
        now = time.perf_counter()
        record = step_record(
            measured,
            step=step,
            position=position,
            sample_ids=self._ids,
            batch_size=self._samples,
            loss_scale=scaler.get_scale() if isinstance(scaler, torch.amp.GradScaler) else None,
            seconds=now - self._clock,
        )
        self._clock = now
        if self._rows not in {0, self._samples}:
            record = replace(record, metrics={**record.metrics, "batch/rows": float(self._rows)})
        if seen := boundary.recorded(record, self.history):
            record = replace(record, metrics={**record.metrics, **seen})
        self.largest = max(self.largest, (self._samples, self.batches))
        self._remember(record)
        if self._on_step is not None:
            self._on_step(record)
        self._losses, self._metrics, self._ids = [], {}, []
        self._samples = self._rows = self.batches = 0
        return record

    def judge(self) -> Divergence | None:
        """Return what the detectors find in the records so far."""
        return detection.judge(self._detectors, self.history)

    def _remember(self, record: StepRecord) -> None:
        """Keep the run's first record, which says where the loss began, and the latest ones."""
        self.history.append(record)
        if len(self.history) > 2 * self._window:
            del self.history[1 : -self._window]
