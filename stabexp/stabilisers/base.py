"""A stabiliser goes along with a run and its replays, and may act at the optimizer's boundary.

It is asked at every update what to do about rates, clipping and gradients, and told every record.
What it does next may depend on what it saw, so its state is part of every checkpoint: a replay from
any of them is exact. Unlike an intervention it is part of the training; unlike a monitor it acts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from stabexp.config import Component
from stabexp.records import StepRecord


class Stabiliser(Component):
    """Does one thing for a training's stability for as long as it lasts.

    Order of calls: plan · attach · [load_state_dict] · for every (micro-)batch: batch_begins,
    [logged], batch_ends · at every update: factors, skips_update, clip_norm, lr_scale · after every
    step: measured, after_step, wants_snapshot, drain_events · detach.
    """

    def plan(self, *, steps: int | None, scaler: GradScaler | None) -> None:
        """Get to know what the training is to be.

        Args:
            steps: Updates of the whole training, None while not known.
            scaler: What scales the loss, the loop's own or `run.scaler()`'s.
        """

    def attach(self, model: nn.Module, optimizers: Sequence[Optimizer], *, step: int) -> None:
        """Get to know the training, whose state is that of `step`.

        In a replay `load_state_dict` comes next.
        """

    def detach(self) -> None:
        """Take back every hook; also called when the training raised."""

    def batch_begins(self, step: int) -> None:
        """Called just before the loop receives a batch for the update of `step`."""

    def logged(self, loss: Tensor) -> None:
        """Called from `run.log(loss)` with the tensor as the loop passed it, graph included."""

    def batch_ends(self) -> None:
        """Called when the loop asks for the next batch, or ends, or raised."""

    def factors(self, parameters: Sequence[Tensor], gradient_norms: Tensor) -> Tensor | None:
        """Return what to multiply gradients by just before an update, None for nothing.

        They are factors on the gradients as the loss gave them, unscaled. Where the run clips by a
        smaller one already, nothing more is done. Called once for each optimizer that steps.

        Args:
            parameters: Those with a gradient.
            gradient_norms: L2 norm of each one's gradient before all clipping, shape
                (len(parameters),). Stay on the device: `.item()` would be a second host sync.

        Returns:
            Shape () or (len(parameters),), on the device of the norms.
        """
        return None

    def skips_update(self, parameters: Sequence[Tensor], gradient_norms: Tensor) -> bool:
        """Return whether the coming update is left out, and all else goes on."""
        return False

    def clip_norm(self, configured: float | None) -> float | None:
        """Return the largest total gradient norm to allow, None for no clipping."""
        return configured

    def lr_scale(self, step: int) -> float:
        """Return the factor on every parameter group's learning rate at `step` (from 0)."""
        return 1.0

    def measured(self) -> Mapping[str, Tensor]:
        """Return 0-d tensors by name, to be recorded among the step's metrics."""
        return {}

    def after_step(self, record: StepRecord, history: Sequence[StepRecord]) -> None:
        """See what the step showed, on the host.

        Args:
            record: The step that is over.
            history: The latest records, `record` the last. The run's first one may stand in front
                though steps after it are left out.
        """

    def wants_snapshot(self) -> bool:
        """Return whether the full state is to be saved now and kept; asked after every step."""
        return False

    def drain_events(self) -> list[dict[str, Any]]:
        """Return what it did since the last call: JSON-ready, with a sentence under "message"."""
        return []

    def state_dict(self) -> dict[str, Any]:
        """Return what decides what it does next: numbers, text, tensors, lists and dicts."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where `state_dict` was called."""
