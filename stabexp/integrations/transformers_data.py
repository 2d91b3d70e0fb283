"""The data of a Trainer: its loader goes on inside an epoch by itself, and Trainer only counts.

Trainer's own way to pass over the used batches makes another loader, whose order is drawn at
another place of the random streams. So it is given the loader that there is, which starts at the
right batch; where reader processes draw random numbers, it reads the used batches once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch.utils.data import DataLoader
from transformers import trainer as trainer_module

from stabexp.errors import NotReplayableError
from stabexp.training import Run
from stabexp.training.loader_watch import LoaderWatch


class TrainerData:
    """What a run asks about the data of a Trainer."""

    numbers_batches = False

    def __init__(self, loader: DataLoader[Any], run: Run) -> None:
        """Watch a loader, in place.

        Raises:
            NotReplayableError: If it makes no batches by index.
        """
        self._watch = LoaderWatch(loader, run)
        self._read_again = 0
        self.dataset = self._watch.dataset

    @property
    def place(self) -> tuple[int, int]:
        """Epochs done, and batches of the next one done."""
        return self._watch.passes - 1, self._watch.used

    def use(self) -> tuple[int, ...]:
        """Return the sample ids of the batch that is used now.

        Raises:
            NotReplayableError: If reader processes keep random streams that cannot be put back.
        """
        if self._watch.loses_streams:
            raise NotReplayableError(
                "TrainingArguments.dataloader_persistent_workers: the reader processes draw random "
                "numbers, and their streams go on from epoch to epoch where nothing can put them "
                "back; set it to False"
            )
        return self._watch.use()

    def state_dict(self) -> Mapping[str, Any]:
        """Return where the data stands."""
        return self._watch.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was called."""
        self._watch.load_state_dict(state)
        self._read_again = self._watch.to_read_again(state)

    def remove(self) -> None:
        """Leave the loader as it was found."""
        self._watch.remove()

    @contextmanager
    def skipping(self) -> Iterator[None]:
        """Let Trainer's passing over batches be what this loader needs."""
        names = vars(trainer_module)
        skip = names["skip_first_batches"]
        names["skip_first_batches"] = lambda loader, number=0: _Again(loader, self._read_again)
        try:
            yield
        finally:
            names["skip_first_batches"] = skip


class _Again:
    """A loader whose first batches are read and not handed out; for one epoch."""

    def __init__(self, loader: Any, count: int) -> None:
        self._loader, self._count = loader, count

    def __iter__(self) -> Iterator[Any]:
        batches: Iterator[Any] = iter(self._loader)
        for _ in range(self._count):
            next(batches, None)
        return batches

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
