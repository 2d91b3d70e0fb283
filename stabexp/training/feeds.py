"""Where the batches of a loop come from, and how each kind of source gets back to a step.

A dataset, or a plain loader over one: the order is a function of the seed and of how many samples
were seen, so any step is reached at once. Another loader over a map-style dataset draws its own
order; a fork draws it again. A stream is set back through its state_dict where it has one, and is
read again from the beginning of the pass where it has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler

from stabexp.errors import NotReplayableError
from stabexp.state.random_streams import current_state, restore_streams
from stabexp.training.data import BatchSource
from stabexp.training.loader_watch import LoaderWatch, check_map_style

if TYPE_CHECKING:
    from stabexp.training.run import Run


END = object()
"""What a feed reads when no batch is left."""


class DataPosition(Protocol):
    """What a run asks whoever watches its data."""

    def use(self) -> tuple[int, ...]:
        """Return the sample ids of the batch that is used now; () when they have none."""

    def state_dict(self) -> Mapping[str, Any]:
        """Return what a fork needs beyond the number of samples used."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Be where `state_dict` was called, before the data is read."""


class Feed(DataPosition, Protocol):
    """Batches from wherever the run is, without end or for a number of passes."""

    dataset: Any
    """The map-style dataset behind it; None for a stream."""
    reads_first: bool
    """Whether a batch is read before the state at its step is taken or put back."""

    def start(self, position: int) -> None:
        """Get ready for the first batch, `position` samples after the start of the training."""

    def read(self) -> Any:
        """Return the next batch, `END` at the end."""

    def close(self) -> None:
        """Let go of worker processes."""


def feed_of(data: Any, run: Run, *, batch_size: int | None, epochs: int | None) -> Feed:
    """Return the feed for whatever was given to `run.steps`.

    Raises:
        NotReplayableError: If its batches cannot be reached again.
    """
    if type(data) is DataLoader and _in_our_order(data):
        return OrderedFeed(data, run, batch_size=batch_size, epochs=epochs)
    if isinstance(data, DataLoader) or hasattr(data, "base_dataloader"):
        holder = getattr(data, "base_dataloader", data)
        stateful = hasattr(data, "state_dict") and hasattr(data, "load_state_dict")
        if stateful and not hasattr(data, "base_dataloader"):
            return StreamFeed(data, run, epochs=epochs)
        try:
            check_map_style(holder)
        except NotReplayableError:
            return StreamFeed(data, run, epochs=epochs)
        return WatchedFeed(data, run, epochs=epochs)
    if hasattr(data, "__len__") and hasattr(data, "__getitem__"):
        return OrderedFeed(data, run, batch_size=batch_size, epochs=epochs)
    if hasattr(data, "__iter__") and not hasattr(data, "__next__"):
        return StreamFeed(data, run, epochs=epochs)
    raise NotReplayableError(
        f"run.steps: a {type(data).__name__} can be read only once, so no step can be reached "
        "again; pass a dataset, a DataLoader, or an object whose iter() starts from the beginning"
    )


def _in_our_order(loader: DataLoader[Any]) -> bool:
    """Whether a loader shows every sample once a pass, shuffled or in a row, and nothing else."""
    if loader.batch_sampler is None or not loader.batch_size:
        return False
    sampler = loader.sampler
    return isinstance(sampler, SequentialSampler) or (
        type(sampler) is RandomSampler
        and not sampler.replacement
        and sampler.num_samples == len(loader.dataset)  # type: ignore[arg-type]
    )


class OrderedFeed:
    """A map-style dataset in an order that is a function of seed and position."""

    reads_first = False

    def __init__(self, data: Any, run: Run, *, batch_size: int | None, epochs: int | None) -> None:
        settings = run.settings
        self._source = BatchSource(
            data,
            batch_size=batch_size or settings.batch_size,
            workers=settings.loader_workers,
            seed=settings.seed,
        )
        self.dataset = self._source.dataset
        plan = run.data_plan
        assert self._source.batch_size is not None
        self._size = self._source.batch_size * plan.multiple
        self._order = self._source.order(salt=plan.salt, replaced=plan.replaced)
        self._shown = plan.shown
        self._left = None if epochs is None else epochs * len(self.dataset)
        self._batches: Iterator[tuple[list[int], Any]] | None = None
        self._ids: list[int] = []

    def start(self, position: int) -> None:
        if self._left is not None:
            self._left -= position
        self._batches = self._source.batches(
            self._order, position=position, size=self._size, first=self._shown
        )

    def read(self) -> Any:
        assert self._batches is not None
        if self._left is not None:
            if self._left <= 0:
                return END
            self._left -= self._size
        self._ids, batch = next(self._batches)
        return batch

    def use(self) -> tuple[int, ...]:
        return tuple(self._ids)

    def state_dict(self) -> Mapping[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        return

    def close(self) -> None:
        if self._batches is not None:
            self._batches.close()  # type: ignore[attr-defined]


class WatchedFeed:
    """A loader over a map-style dataset that draws its own order."""

    reads_first = True

    def __init__(self, loader: Any, run: Run, *, epochs: int | None) -> None:
        self._loader = loader
        self._epochs = epochs
        self._watch = LoaderWatch(loader, run)
        self.dataset = self._watch.dataset
        self._batches: Iterator[Any] | None = None

    def start(self, position: int) -> None:
        self._batches = iter(self._loader)

    def read(self) -> Any:
        assert self._batches is not None
        for _ in range(2):  # the rest of a pass may be empty
            for batch in self._batches:
                return batch
            if self._epochs is not None and self._watch.passes >= self._epochs:
                return END
            self._batches = iter(self._loader)
        raise NotReplayableError("run.steps: the loader has no batches")

    def use(self) -> tuple[int, ...]:
        return self._watch.use()

    def state_dict(self) -> Mapping[str, Any]:
        return self._watch.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._watch.load_state_dict(state)

    def close(self) -> None:
        self._batches = None


class StreamFeed:
    """Anything that can be iterated from its beginning; its samples have no numbers."""

    reads_first = False
    dataset = None

    def __init__(self, loader: Any, run: Run, *, epochs: int | None) -> None:
        plan = run.data_plan
        if plan.salt or plan.replaced or plan.shown or plan.multiple > 1:
            raise NotReplayableError(
                f"run.steps: {type(loader).__name__} is a stream, whose samples have no numbers, "
                "so their order, their choice and their number per batch cannot be changed; use a "
                "map-style dataset"
            )
        self._loader = loader
        self._run = run
        self._epochs = epochs
        self._stateful = hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")
        self._passes = 0
        self._used = 0
        self._start: dict[str, Any] = {}
        self._resumed: Mapping[str, Any] | None = None
        self._batches: Iterator[Any] | None = None

    def start(self, position: int) -> None:
        resumed = self._resumed
        if resumed is None:
            self._begin_pass()
            return
        self._passes, self._used = resumed["passes"], resumed["used"]
        self._start = dict(resumed["start"])
        # A loader with a state may all the same read again from the beginning, as torchdata's does
        # over a dataset that has none.
        restore_streams(self._start)
        if self._stateful:
            self._loader.load_state_dict(resumed["loader"])
        self._batches = iter(self._loader)
        if self._stateful or not self._used:
            return
        self._run.notice(
            f"{type(self._loader).__name__} has no state_dict, so {self._used} batches were "
            "read again to get to the step; torchdata's StatefulDataLoader would not have to"
        )
        for _ in range(self._used):
            next(self._batches, None)

    def read(self) -> Any:
        assert self._batches is not None
        for _ in range(2):
            for batch in self._batches:
                self._used += 1
                return batch
            if self._epochs is not None and self._passes >= self._epochs:
                return END
            self._begin_pass()
        raise NotReplayableError(
            f"run.steps: {type(self._loader).__name__} has no batches in a second pass; its iter() "
            "must start from the beginning"
        )

    def use(self) -> tuple[int, ...]:
        return ()

    def _begin_pass(self) -> None:
        self._passes += 1
        self._used = 0
        self._start = current_state()
        self._batches = iter(self._loader)

    def state_dict(self) -> Mapping[str, Any]:
        return {
            "passes": self._passes,
            "used": self._used,
            "start": self._start,
            "loader": self._loader.state_dict() if self._stateful else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._resumed = state

    def close(self) -> None:
        self._batches = None


def batch_length(batch: Any) -> int:
    """Return the first dimension of the first tensor in a batch, 0 when there is none."""
    if isinstance(batch, Tensor):
        return int(batch.shape[0]) if batch.dim() else 0
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        return next((size for item in batch if (size := batch_length(item))), 0)
    return 0
