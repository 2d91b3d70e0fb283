"""Where the batches of a loop come from, and how each kind of source gets back to a step.

A dataset, or a plain loader over one: the order is a function of the seed and of how many samples
were seen, so any step is reached at once. Another loader over a map-style dataset draws its own
order; a fork draws it again. A stream is set back through its state_dict where it has one, and is
read again from the beginning of the pass where it has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from torch.utils.data import DataLoader, RandomSampler, SequentialSampler

from stabexp.errors import NotReplayableError
from stabexp.state.snapshot import Stateful
from stabexp.training.batches import END
from stabexp.training.data import BatchSource
from stabexp.training.loader_watch import LoaderWatch, check_map_style
from stabexp.training.loader_workers import end_workers
from stabexp.training.samplers import begin_pass
from stabexp.training.stream_feed import StreamFeed

if TYPE_CHECKING:
    from stabexp.training.run import Run


class DataPosition(Protocol):
    """What a run asks whoever watches its data."""

    dataset: Any
    """The map-style dataset behind it; None for a stream."""
    numbers_batches: bool
    """Whether ids are numbers of batches, not of samples: a stream has no others."""

    def use(self) -> tuple[int, ...]:
        """Return the sample ids of the batch that is used now; () when they have none."""

    def state_dict(self) -> Mapping[str, Any]:
        """Return what a fork needs beyond the number of samples used."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Be where `state_dict` was called, before the data is read."""


class Feed(DataPosition, Protocol):
    """Batches from wherever the run is, without end or for a number of passes."""

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
    if isinstance(data, DataLoader):
        if _by_index(getattr(data, "base_dataloader", data)):
            return WatchedFeed(data, run, epochs=epochs)
        return StreamFeed(data, run, epochs=epochs)
    if hasattr(data, "__len__") and hasattr(data, "__getitem__"):
        return OrderedFeed(data, run, batch_size=batch_size, epochs=epochs)
    if hasattr(data, "__iter__") and not hasattr(data, "__next__"):
        return StreamFeed(data, run, epochs=epochs)
    raise NotReplayableError(
        f"run.steps: a {type(data).__name__} can be read only once, so no step can be reached "
        "again; pass a dataset, a DataLoader, or an object whose iter() starts from the beginning"
    )


def _by_index(loader: DataLoader[Any]) -> bool:
    """Whether a loader asks for samples by numbers that alone decide what it gets."""
    try:
        check_map_style(loader)
    except NotReplayableError:
        return False
    return not isinstance(loader.dataset, Stateful)


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
    """A map-style dataset in an order that is a function of seed and position.

    The order is ours, also for a `DataLoader(shuffle=True)`: any step is reached at once, and a
    batch may go over the end of a pass. Where the loader's own order matters, give it a sampler.
    """

    reads_first = False
    numbers_batches = False

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
    """A loader over a map-style dataset that draws its own order, the same as without stabexp.

    A sampler that wants to be told the number of the pass is told it.
    """

    reads_first = True
    numbers_batches = False

    def __init__(self, loader: Any, run: Run, *, epochs: int | None) -> None:
        self._loader = loader
        self._epochs = epochs
        self._watch = LoaderWatch(loader, run)
        self.dataset = self._watch.dataset
        self._batches: Iterator[Any] | None = None
        self._read_again = 0

    def start(self, position: int) -> None:
        begin_pass(self._loader, max(self._watch.passes - 1, 0))
        self._batches = iter(self._loader)
        for _ in range(self._read_again):
            next(self._batches)

    def read(self) -> Any:
        assert self._batches is not None
        for _ in range(2):  # the rest of a pass may be empty
            for batch in self._batches:
                return batch
            if self._epochs is not None and self._watch.passes >= self._epochs:
                return END
            begin_pass(self._loader, self._watch.passes)
            self._batches = iter(self._loader)
        raise NotReplayableError("run.steps: the loader has no batches")

    def use(self) -> tuple[int, ...]:
        if self._watch.loses_streams:
            raise NotReplayableError(
                "run.steps: the loader's worker processes draw random numbers, and with "
                "persistent_workers=True their streams go on from pass to pass where nothing can "
                "put them back; set persistent_workers=False"
            )
        return self._watch.use()

    def state_dict(self) -> Mapping[str, Any]:
        return self._watch.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._watch.load_state_dict(state)
        self._read_again = self._watch.to_read_again(state)

    def close(self) -> None:
        end_workers(self._loader, self._batches)
        self._batches = None
        self._watch.remove()
