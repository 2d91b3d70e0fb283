"""An Accelerate loop drives a run as a plain one does: `extra=accelerated(accelerator)`.

    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    steps = run.steps(
        loader,
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        extra=accelerated(accelerator),
    )
    for batch in steps:
        with accelerator.accumulate(model):
            ...

Accelerate counts (micro-)batches itself to know when to update, and starts to count anew at the end
of a pass. So its count is part of the state. The order of the samples is that of its own loader.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accelerate import Accelerator
from accelerate.utils import DistributedType

from stabexp.errors import NotReplayableError
from stabexp.state import Stateful

_ALONE = {DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU}


def accelerated(accelerator: Accelerator) -> Mapping[str, Stateful]:
    """Return what Accelerate remembers from one batch to the next, for `run.steps(extra=…)`.

    Tested with accelerate 1.15.

    Raises:
        NotReplayableError: If the training is spread over several processes, or its loaders keep
            a state of their own.
    """
    if accelerator.num_processes > 1 or accelerator.distributed_type not in _ALONE:
        raise NotReplayableError(
            f"accelerated: this is {accelerator.distributed_type.value} with "
            f"{accelerator.num_processes} processes, and only a training in one process can be "
            "replayed exactly; start the script with python instead of accelerate launch"
        )
    if accelerator.use_stateful_dataloader:
        raise NotReplayableError(
            "accelerated: use_stateful_dataloader=True makes loaders that are read before stabexp "
            "sees them, and it is not needed: a replay finds its place in an ordinary loader; "
            "leave it out of DataLoaderConfiguration"
        )
    return {"accelerator": AcceleratorCount(accelerator)}


class AcceleratorCount:
    """Where an Accelerator stands between two updates."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator

    def state_dict(self) -> dict[str, Any]:
        """Return batches since it last began to count, and whether the last one ended an update.

        How far the loader is, and whether it is at its end, the loader's own position says.
        """
        return {
            "step": self._accelerator.step,
            "sync_gradients": self._accelerator.gradient_state.sync_gradients,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on counting from there."""
        self._accelerator.step = state["step"]
        self._accelerator.gradient_state.sync_gradients = state["sync_gradients"]
