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

PINNED = 2
"""How many states that were asked for are kept, the newest."""


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
        self.waiting = False
        """Whether the state is to be saved before the next step."""
        self._pinned: list[int] = []

    def step_over(
        self, step: int, history: Sequence[StepRecord], *, diverged: bool, wanted: bool
    ) -> None:
        """Decide whether the state before `step` is to be saved, and which ones are kept.

        Args:
            step: The step that would be next.
            history: The latest records.
            diverged: Whether the run ends here because it diverged.
            wanted: Whether something asked for this state, which is kept then.
        """
        wanted = wanted and self.keep_saving and not diverged
        if wanted:
            self._pinned = [*self._pinned, step][-PINNED:]
        due = wanted or self.due(step)
        self.waiting = self.keep_saving if diverged else due
        if due and not diverged:
            # Before the save, which removes older ones in the background.
            self.protect_last_good(step, history)

    def due(self, step: int) -> bool:
        """Whether the state before `step` is to be saved."""
        if self.store is None:
            return False
        return step % self.every == 0 if self.keep_saving else step in self.save_at

    def save(self, step: int, capture: Callable[[], Snapshot], *, finite: bool) -> None:
        """Save a state; the store keeps the reason when it cannot.

        A full disk must not end a healthy training.
        """
        self.waiting = False
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
        young = {saved for saved in steps if saved > seen - MARGIN or saved in self._pinned}
        if self.store.pending is not None:  # on a slow disk it is not among the written ones yet
            young.add(self.store.pending)
        with suppress(CheckpointError, OSError):
            self.store.protect(*young, *(() if good is None else (good,)))
