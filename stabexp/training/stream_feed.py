"""A stream has no samples to be asked for, so its batches are numbered as they come.

That is enough to leave some out, to look at each of a few alone, and to join several into one:
what a replay changes about the data of a map-style dataset by samples, it changes here by batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from stabexp.errors import NotReplayableError
from stabexp.state.random_streams import current_state, isolated_streams, restore_streams
from stabexp.state.snapshot import Stateful
from stabexp.training.batches import END, content, joined
from stabexp.training.draws import KEPT, Draws
from stabexp.training.loader_workers import end_workers
from stabexp.training.samplers import begin_pass

if TYPE_CHECKING:
    from stabexp.training.run import Run


class StreamFeed:
    """Anything that can be iterated from its beginning."""

    reads_first = False
    dataset = None
    numbers_batches = True
    """Ids are numbers of batches, from 0 at the start of the training, not of samples."""

    def __init__(self, loader: Any, run: Run, *, epochs: int | None) -> None:
        self._name = type(loader).__name__
        self._plan = run.data_plan
        if self._plan.salt:
            raise NotReplayableError(
                f"run.steps: {self._name} is a stream, whose order is its own and cannot be "
                "changed; use a map-style dataset"
            )
        self._loader = loader
        self._run = run
        self._epochs = epochs
        # A loader over a dataset that has no state can but read it again, and so can we, exactly.
        # Accelerate's loaders say that they have a state, and mostly have none.
        self._stateful = (
            isinstance(loader, Stateful)
            and isinstance(getattr(loader, "dataset", loader), Stateful)
            and not hasattr(loader, "base_dataloader")
        )
        self._passes = 0
        self._used = 0  # batches of this pass that were read
        self._number = 0  # of the next batch
        self._ids: tuple[int, ...] = ()
        self._ahead: deque[tuple[int, Any]] = deque()
        self._shown = list(self._plan.shown)
        self._left_out: set[str] | None = None
        self._start: dict[str, Any] = {}
        self._before: dict[str, Any] = {}
        """How the pass before this one began, and with which number."""
        self._draws = Draws({}, shares=True)
        self._resumed: Mapping[str, Any] | None = None
        self._batches: Iterator[Any] | None = None

    def start(self, position: int) -> None:
        """Get to where the run is in the stream."""
        resumed = self._resumed
        if resumed is None:
            self._begin_pass()
            return
        self._passes, self._used = resumed["passes"], resumed["used"]
        self._number = resumed["number"]
        self._start, self._before = dict(resumed["start"]), dict(resumed["before"])
        restore_streams(self._start["streams"])
        if self._stateful:
            self._loader.load_state_dict(resumed["loader"])
        self._iterate()
        if self._stateful or not self._used:
            return
        self._run.notice(
            f"{self._name} has no state that could be put back, so {self._used} batches were read "
            "again to get to the step; a map-style dataset would spare that, or a dataset with "
            "state_dict and load_state_dict in torchdata's StatefulDataLoader"
        )
        for _ in range(self._used):
            self._read_one()

    def read(self) -> Any:
        """Return the next batch, `END` at the end."""
        if self._shown:
            return self._chosen(self._shown.pop(0))
        found: list[Any] = []
        ids: list[int] = []
        while len(found) < self._plan.multiple:
            number, batch = self._ahead.popleft() if self._ahead else self._next()
            if batch is END:
                return END
            if not self._is_left_out(number, batch):
                found.append(batch)
                ids.append(number)
        self._ids = tuple(ids)
        return found[0] if len(found) == 1 else joined(found)

    def _is_left_out(self, number: int, batch: Any) -> bool:
        """Whether a batch is one to leave out, or the same that comes again in a later pass."""
        replaced = self._plan.replaced
        if not replaced:
            return False
        if self._left_out is None:
            self._left_out = set()
            gone = [each for each in replaced if each < number]
            with suppress(NotReplayableError):  # too far back to be known
                self._left_out |= {content(each) for each in self._read_again(gone).values()}
        seen = content(batch)
        if number in replaced:
            self._left_out.add(seen)
        return seen in self._left_out

    def use(self) -> tuple[int, ...]:
        """Return the numbers of the batches that are used now."""
        return self._ids

    def _next(self) -> tuple[int, Any]:
        """Return the number and the next batch of the stream; the batch is `END` at the end."""
        for _ in range(2):
            if (batch := self._read_one()) is not END:
                self._used += 1
                self._number += 1
                return self._number - 1, batch
            if self._epochs is not None and self._passes >= self._epochs:
                return self._number, END
            self._begin_pass()
        raise NotReplayableError(
            f"run.steps: {self._name} has no batches in a second pass; its iter() must start from "
            "the beginning"
        )

    def _chosen(self, numbers: tuple[int, ...]) -> Any:
        """Return the batches with these numbers as one; what is read before them comes later."""
        known = dict(self._ahead)
        gone = [number for number in numbers if number < self._number and number not in known]
        if gone:
            known |= self._read_again(gone)
        while self._number <= max(numbers):
            number, batch = self._next()
            if batch is END:
                return END
            self._ahead.append((number, batch))
            known[number] = batch
        self._ids = numbers
        return joined([known[number] for number in numbers])

    def _read_again(self, numbers: list[int]) -> dict[int, Any]:
        """Return batches that this pass and the one before have left behind, read once more."""
        if not numbers:
            return {}
        first = self._number - self._used
        earlier = self._before["first"] if self._before else first
        if self._stateful or min(numbers) < earlier:
            raise NotReplayableError(
                f"run.steps: batch {min(numbers)} of {self._name} lies before this state, and the "
                "stream cannot be read backwards; use a map-style dataset"
            )
        found: dict[int, Any] = {}
        with isolated_streams():
            for start, begins, back in ((self._before, earlier, 2), (self._start, first, 1)):
                ends = first if back == 2 else self._number
                wanted = [number for number in numbers if begins <= number < ends]
                if not wanted:
                    continue
                begin_pass(self._loader, self._passes - back)
                restore_streams(start["streams"])
                draws = Draws(start["draws"], shares=True)
                batches = iter(self._loader)
                for number in range(begins, max(wanted) + 1):
                    found[number] = draws.read(batches, END)
            begin_pass(self._loader, self._passes - 1)
        return {number: found[number] for number in numbers}

    def _begin_pass(self) -> None:
        if self._start:
            self._before = {"first": self._number - self._used, **self._start}
        self._passes += 1
        self._used = 0
        self._start = {"streams": current_state(), "draws": {}}
        self._iterate()

    def _iterate(self) -> None:
        begin_pass(self._loader, self._passes - 1)
        # With a state nothing is read again, and so no stream put back.
        kept = {} if self._stateful else self._start["draws"]
        self._draws = Draws(kept, shares=not self._stateful, on_lost=self._say_lost)
        self._batches = iter(self._loader)

    def _read_one(self) -> Any:
        assert self._batches is not None
        return self._draws.read(self._batches, END)

    def _say_lost(self) -> None:
        self._run.notice(
            f"{self._name} draws from the global random streams for every batch, as the training "
            f"does, and after {KEPT} such batches in a pass a replay may differ where its order "
            "depends on them; give it a generator of its own"
        )

    def state_dict(self) -> Mapping[str, Any]:
        """Return where the stream stands."""
        return {
            "passes": self._passes,
            "used": self._used,
            "number": self._number,
            "start": self._start,
            "before": self._before,
            "loader": self._loader.state_dict() if self._stateful else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Be where `state_dict` was called, once `start` is."""
        self._resumed = state

    def close(self) -> None:
        """Let go of the iterator."""
        end_workers(self._loader, self._batches)
        self._batches = None
