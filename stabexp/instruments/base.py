"""An instrument watches a replay closely and says what it found; it is too dear for a training.

It may hook, wrap and synchronise as it likes, but it must not change a single bit of the training:
an instrumented replay that differs from the run could not stand for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from stabexp.config import Component


@dataclass(frozen=True, kw_only=True)
class Watched:
    """What a training function gave to `run.steps`."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler | None = None
    scheduler: Any = None
    accumulate: int = 1
    """Configured micro-batches per update; a user's own loop may do otherwise."""
    dataset_size: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


class Instrument(Component):
    """Watches every batch of a replay, from the moment it is handed out until the next one is.

    Order of calls: attach · for every (micro-)batch: batch_begins, [logged], batch_ends · after the
    batch that completed an update: update_ends · detach · findings.
    """

    one_optimizer: ClassVar[bool] = False
    """Whether it can only watch a training with a single optimizer; it is left out of others."""

    def attach(self, watched: Watched) -> None:
        """Get to know the training; called once, after the state was restored."""

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        """Called just before the loop receives a batch.

        Modes entered here must be left in `batch_ends`; the loop's own code runs in between.

        Args:
            step: Index of the update that the batch is for.
            ids: Sample ids in the batch, in order.
            batch: What the loop receives: tensors, or tuples, lists and dicts of them.
        """

    def logged(self, loss: Tensor) -> None:
        """Called from `run.log(loss)` with the tensor as the loop passed it, graph included."""

    def batch_ends(self) -> None:
        """Called when the loop asks for the next batch, or ends, or raised."""

    def update_ends(self, step: int) -> None:
        """Called after `batch_ends` when the batch completed the update of `step`."""

    def detach(self) -> None:
        """Take back every hook and patch; also called when the training raised."""

    def findings(self) -> Any:
        """Return what was found as JSON-ready values, or None for nothing."""
        return None
