"""The data boundary of a loader that somebody else iterates: which samples come, and from where on.

A wrapper around the loader's batch sampler sees every index before its sample is read. What is read
is not yet used: loaders prefetch. So the ids wait in a row until their batch is used, first in
first out, and a position in the data is a count of *used* batches.

The order of a pass is drawn when the pass begins. So the random streams at that moment are state,
and a fork draws the same order again and passes over the used part at the index level, without
reading a sample. A dataset that draws random numbers while it reads, in the training process, gets
the streams that it had: they are kept for each batch that was read and not yet used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from stabexp.errors import NotReplayableError
from stabexp.state.random_streams import (
    as_state,
    current_state,
    host_streams,
    restore_streams,
)
from stabexp.training.data import substitutes
from stabexp.training.draws import KEPT, Draws, WatchedCollate
from stabexp.training.samplers import (
    draws_at_once,
    generators,
    sampler_state,
    set_sampler_state,
)

if TYPE_CHECKING:
    from stabexp.training.run import Run


@dataclass(frozen=True, slots=True)
class _Fetched:
    """One batch that was handed to the loader for reading."""

    ids: tuple[Any, ...]
    taken: int
    """The sampler's batches in it, of the pass it ends in: several where a replay joins them."""
    begun: Mapping[str, Any] | None
    """How that pass began, when it began inside this batch."""
    streams: tuple[Any, Any, Any] | None
    """Python's, NumPy's and torch's streams as its reading began."""


class LoaderWatch:
    """Watches, and where asked changes, what a map-style DataLoader reads."""

    numbers_batches = False

    def __init__(self, loader: DataLoader[Any], run: Run) -> None:
        """Put a wrapper around the loader's batch sampler, in place.

        Raises:
            NotReplayableError: If the loader has no batches of samples by index.
        """
        # Accelerate wraps the loader itself.
        holder: DataLoader[Any] = getattr(loader, "base_dataloader", loader)
        check_map_style(holder)
        self.dataset: Any = holder.dataset
        self.skips_itself = False
        """Whether the trainer itself passes over the used batches of a pass."""
        self.passes = 0
        """Passes begun so far, the present one included."""
        self.used = 0
        """The sampler's batches of this pass that were used."""
        self._plan = run.data_plan
        self._seed = run.settings.seed
        self._inner: Any = holder.batch_sampler
        self._reads_here = holder.num_workers == 0
        self._sampler = getattr(self._inner, "sampler", None)
        self._generators = generators(holder, self._inner, self._sampler)
        self._instead = substitutes(self._plan.replaced, len(holder.dataset))  # type: ignore[arg-type]
        self._shown: list[Sequence[Any]] = list(self._plan.shown)
        self._waiting: deque[_Fetched] = deque()
        self._start: dict[str, Any] = {}
        self._resumed: Mapping[str, Any] | None = None
        self._going_on: Mapping[str, Any] | None = None
        self._undrawn = False
        self._shares = not draws_at_once(self._inner, self._sampler)
        self._notice = run.notice
        self._persistent = holder.num_workers > 0 and holder.persistent_workers
        self._collate: WatchedCollate | None = None
        self._holder, collate = holder, holder.collate_fn
        self._taken_back = {"batch_sampler": self._inner, "collate_fn": collate}
        if holder.num_workers:
            self._collate = holder.collate_fn = WatchedCollate(collate)
        holder.__dict__["batch_sampler"] = _Watched(self, self._inner)

    def remove(self) -> None:
        """Leave the loader as it was found; passes that were begun are still watched."""
        vars(self._holder).update(self._taken_back)

    @property
    def loses_streams(self) -> bool:
        """Whether worker processes draw from random streams that outlive a pass.

        Nothing can put those back, so no later place can be reached exactly.
        """
        return self._persistent and self._workers_draw

    @property
    def _workers_draw(self) -> bool:
        """Whether worker processes were seen to draw random numbers while they read."""
        return self._collate is not None and self._collate.drew

    def to_read_again(self, state: Mapping[str, Any]) -> int:
        """Return how many batches have to be read once more to get to a state, and say so.

        Where worker processes draw random numbers, a place inside a pass is reached exactly only by
        reading the pass up to there. Whoever iterates the loader throws these batches away.
        """
        if not state["workers_draw"]:
            return 0
        count = int(state["used"])
        if count:
            self.skips_itself = True
            self._notice(
                f"the loader's workers draw random numbers, so {count} batches were read again to "
                "get to the step"
            )
        return count

    def use(self) -> tuple[int, ...]:
        """Return the sample ids of the batch that is used now; () when they are no numbers."""
        if not self._waiting:
            return ()
        fetched = self._waiting.popleft()
        if fetched.begun is not None:
            self._start, self.used = dict(fetched.begun), 0
        self.used += fetched.taken
        ids = fetched.ids
        return tuple(map(int, ids)) if all(isinstance(i, (int, np.integer)) for i in ids) else ()

    def state_dict(self) -> dict[str, Any]:
        """Return where the data stands: what is used, how the pass began, what is being read.

        A pass of which nothing is left is over: the next one begins here.
        """
        over = 0 < _length(self._inner) <= self.used and not self._waiting
        return {
            "passes": self.passes + over,
            "used": 0 if over else self.used,
            "start": self._beginning() if over else self._start,
            "reading": [as_state(f.streams) for f in self._waiting if f.streams is not None],
            "workers_draw": self._workers_draw,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Start the next pass where `state_dict` was called."""
        self._resumed = state
        self.passes, self.used = state["passes"], state["used"]

    def begin_pass(self) -> Iterator[list[Any]]:
        """Return the batches of one pass by their ids; the streams are those of its beginning."""
        self._shown[:0] = [fetched.ids for fetched in self._waiting if not fetched.taken]
        self._waiting.clear()
        if not (self._undrawn and not self._reads_here):
            # A loader with workers asks twice while it starts; both times are one beginning.
            self._undrawn = True
            self._begin(self._resumed)
            self._going_on, self._resumed = self._resumed, None
        resumed = self._going_on or {}
        return self._pass(
            iter(self._inner), skip=resumed.get("used", 0), reading=resumed.get("reading", ())
        )

    def _begin(self, resumed: Mapping[str, Any] | None) -> None:
        if resumed is None:
            self.passes += 1
            self.used = 0
            self._start = self._beginning()
            return
        self._start = dict(resumed["start"])
        for generator, state in zip(self._generators, self._start["generators"], strict=True):
            generator.set_state(state)
        set_sampler_state(self._sampler, self._start["sampler"])
        restore_streams(self._start["streams"])

    def _beginning(self) -> dict[str, Any]:
        return {
            "streams": current_state(),
            "generators": [generator.get_state() for generator in self._generators],
            "sampler": sampler_state(self._sampler),
            "draws": {},
        }

    def _draws(self, start: Mapping[str, Any]) -> Draws:
        return Draws(start["draws"], shares=self._shares, on_lost=self._say_lost)

    def _say_lost(self) -> None:
        self._notice(
            f"{type(self._inner).__name__} draws from the global random streams for every batch, "
            f"as the training does, and after {KEPT} such batches in a pass a replay may differ; "
            "give it a torch.Generator of its own"
        )

    def _pass(
        self, inner: Iterator[list[Any]], *, skip: int, reading: Iterable[Any]
    ) -> Iterator[list[Any]]:
        """Yield the rest of a pass: as many batches as the sampler has, joined or not."""
        self._undrawn = False
        draws = self._draws(self._start)
        if self._plan.salt:
            inner = iter(self._reordered(list(inner)))
        given = drawn = 0
        while drawn < skip and (passed := draws.read(inner, None)) is not None:
            given, drawn = given + 1, drawn + 1
            if self.skips_itself:
                yield list(passed)
        # What was being read when the state was taken is read again, each batch from the streams
        # that it had; what follows meets those that the training left.
        again = iter(() if self._shown else reading)
        yield from self._shown_first()
        total: int | None = None
        while total is None or given < total:
            joined: list[Any] = []
            count = taken = 0
            begun = None
            while count < self._plan.multiple:
                more = draws.read(inner, None)
                if more is not None:
                    joined += list(more)
                    count, taken, drawn = count + 1, taken + 1, drawn + 1
                    continue
                total = total or drawn
                if self._plan.multiple == 1 or given >= total or not drawn:
                    break
                # Joined batches use a pass up early; the trainer counts on its whole length.
                begun, taken = self._beginning(), 0
                draws = self._draws(begun)
                inner = iter(self._inner)
            if not joined:
                return
            given += 1
            after = draws.after
            if (saved := next(again, None)) is not None:
                restore_streams(saved)
                after = None
            streams = (after or host_streams()) if self._reads_here else None
            shown = [self._instead.get(i, i) for i in joined] if self._instead else joined
            self._waiting.append(_Fetched(tuple(shown), taken, begun, streams))
            yield shown

    def _shown_first(self) -> Iterator[list[int]]:
        while self._shown:  # a trainer that counts may end the pass before all of them were shown
            ids = self._shown.pop(0)
            self._waiting.append(_Fetched(tuple(ids), 0, None, None))
            yield list(ids)

    def _reordered(self, batches: list[list[Any]]) -> list[list[Any]]:
        """Return batches of the same sizes with the samples of the pass in another order."""
        every = [i for batch in batches for i in batch]
        stream = np.random.Generator(np.random.PCG64([self._seed, self._plan.salt, self.passes]))
        order = iter(stream.permutation(len(every)).tolist())
        return [[every[next(order)] for _ in batch] for batch in batches]


class _Watched(BatchSampler):
    """Stands in for a batch sampler; whatever else is asked of it, the inner one answers."""

    def __init__(self, watch: LoaderWatch, inner: Any) -> None:
        self._watch, self._inner = watch, inner

    def __iter__(self) -> Iterator[list[Any]]:
        return self._watch.begin_pass()

    def __len__(self) -> int:
        return len(self._inner)

    def __getattr__(self, name: str) -> Any:
        if name in ("_inner", "_watch"):  # while it is being copied
            raise AttributeError(name)
        return getattr(self._inner, name)


def check_map_style(loader: DataLoader[Any]) -> None:
    """Raise NotReplayableError unless the loader makes batches of samples by index."""
    if isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
        raise NotReplayableError(
            f"the loader over {type(loader.dataset).__name__} makes no batches by index, so its "
            "position cannot be restored; use a map-style dataset with a batch size"
        )


def _length(batches: Any) -> int:
    """Return how many batches a sampler says that a pass has, 0 when it does not."""
    try:
        return len(batches)
    except (AttributeError, NotImplementedError, TypeError):
        return 0
