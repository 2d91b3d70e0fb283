"""When a state is saved, and which saved ones are kept: due steps, and the last good one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from stabexp import detectors as detection
from stabexp.detectors.good import MARGIN
from stabexp.errors import CheckpointError
from stabexp.records import StepRecord
from stabexp.state.checkpoints import CheckpointStore
from stabexp.state.snapshot import Snapshot


class Keeper:
    """Saves the states of one run."""

    def __init__(
        self,
        store: CheckpointStore | None,
        *,
        every: int,
        keep_saving: bool,
        save_at: Collection[int],
    ) -> None:
        """Every `every` steps while `keep_saving`; before the steps `save_at` in a replay."""
        self.store = store
        self.every = every
        self.keep_saving = keep_saving
        self.save_at = save_at

    def due(self, step: int) -> bool:
        """Whether the state before `step` is to be saved."""
        if self.store is None:
            return False
        return step % self.every == 0 if self.keep_saving else step in self.save_at

    def save(self, step: int, capture: Callable[[], Snapshot], *, finite: bool) -> None:
        """Save a state; the store keeps the reason when it cannot.

        A full disk must not end a healthy training.
        """
        if self.store is not None:
            with suppress(CheckpointError):
                self.store.save(step, capture(), finite=finite)

    def protect_last_good(self, step: int, history: Sequence[StepRecord]) -> None:
        """Keep the newest state that looks good from a distance, and those not yet distant."""
        if self.store is None or not self.keep_saving:
            return
        steps = [info.step for info in self.store.infos() if info.finite]
        seen = step - 2 * self.every
        good = detection.last_good_step(tuple(history), seen, steps)
        young = {saved for saved in steps if saved > seen - MARGIN}
        if self.store.pending is not None:  # on a slow disk it is not among the written ones yet
            young.add(self.store.pending)
        with suppress(CheckpointError, OSError):
            self.store.protect(*young, *(() if good is None else (good,)))
