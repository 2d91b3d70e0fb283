"""What a watched loader gives after a fork, for any sizes and any number of batches read ahead."""

from __future__ import annotations

from collections import deque

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, Sampler, WeightedRandomSampler

from stabexp.state.plain_values import from_plain, to_plain
from stabexp.state.random_streams import isolated_streams, seed_everything
from stabexp.training import Run, RunSettings
from stabexp.training.loader_watch import LoaderWatch
from stabexp.training.samplers import begin_pass


class Drawn(Sampler[list[int]]):
    """Draws each batch from the global stream, from what is left of the pass."""

    def __init__(self, size, batch_size):
        self.size, self.batch_size = size, batch_size

    def __iter__(self):
        left = list(range(self.size))
        while left:
            batch = [left[i] for i in torch.randperm(len(left)).tolist()[: self.batch_size]]
            left = [sample for sample in left if sample not in batch]
            yield batch

    def __len__(self):
        return len(range(0, self.size, self.batch_size))


@st.composite
def worlds(draw, kinds=("weighted", "own generator", "lazy")):
    """Return a loader's maker, how far a consumer reads ahead, and the batches of run and fork."""
    size, batch = draw(st.integers(1, 30)), draw(st.integers(1, 9))
    drop_last = draw(st.booleans()) and batch <= size
    kind = draw(st.sampled_from(kinds))

    def make():
        data = list(range(size))
        if kind == "lazy":
            return DataLoader(data, batch_sampler=Drawn(size, batch))
        own = torch.Generator().manual_seed(5) if kind == "own generator" else None
        sampler = WeightedRandomSampler(torch.ones(size), size, replacement=False, generator=own)
        return DataLoader(data, batch_sampler=BatchSampler(sampler, batch, drop_last))

    used = draw(st.integers(0, 24))
    return make, draw(st.integers(1, 4)), used, draw(st.integers(1, 12))


class Consumer:
    """Reads batches ahead, as trainers do, and draws random numbers of its own for each it uses."""

    def __init__(self, make, ahead, **changes):
        settings = RunSettings(name="test", interventions=changes)
        self.loader = make()
        self.watch = LoaderWatch(self.loader, Run(settings))
        self.ahead, self.waiting, self.passes, self.ended = ahead, deque(), None, True

    def read(self):
        """Read ahead as far as this consumer does, never over the end of a pass."""
        for _ in range(2):  # the rest of a pass may be empty
            if self.ended and not self.waiting:
                self.passes, self.ended = iter(self.loader), False
            while len(self.waiting) < self.ahead and not self.ended:
                batch = next(self.passes, None)
                self.ended = batch is None
                if batch is not None:
                    self.waiting.append(batch.tolist())

    def use(self):
        """Return the ids of the next batch; what was read must be what the ids say."""
        self.read()
        ids = self.watch.use()
        assert list(ids) == self.waiting.popleft()
        torch.rand(3)
        return ids


@settings(max_examples=150, deadline=None)
@given(worlds())
def test_a_fork_goes_on_with_the_ids_of_the_run(world):
    make, ahead, used, count = world
    with isolated_streams():
        seed_everything(0)
        run = Consumer(make, ahead)
        before = [run.use() for _ in range(used)]
        run.read()
        state = to_plain(run.watch.state_dict(), where="data")
        streams = torch.get_rng_state()
        then = [run.use() for _ in range(count)]

        seed_everything(1)
        fork = Consumer(make, ahead)
        fork.watch.load_state_dict(from_plain(state))
        fork.read()
        torch.set_rng_state(streams)
        assert [fork.use() for _ in range(count)] == then
        assert len(before) == used


@settings(max_examples=100, deadline=None)
@given(worlds(kinds=("own generator",)), st.integers(2, 4))
def test_joined_batches_are_the_next_batches_of_the_run(world, multiple):
    make, ahead, _, count = world
    with isolated_streams():
        seed_everything(0)
        run = Consumer(make, ahead)
        flat = [run.use() for _ in range(count * multiple)]
        seed_everything(0)
        joined = Consumer(make, ahead, batch_size=multiple)
        for number in range(count):
            own = flat[number * multiple : (number + 1) * multiple]
            assert joined.use() == tuple(sample for batch in own for sample in batch)


@settings(max_examples=100, deadline=None)
@given(worlds(), st.sets(st.integers(0, 29), min_size=1))
def test_replaced_samples_never_come_and_the_others_stay_in_place(world, replaced):
    make, ahead, _, count = world
    size = len(make().dataset)
    replaced = {sample for sample in replaced if sample < size}
    if not replaced or len(replaced) == size:
        return
    with isolated_streams():
        seed_everything(0)
        run = Consumer(make, ahead)
        own = [run.use() for _ in range(count)]
        seed_everything(0)
        other = Consumer(make, ahead, replace_samples=",".join(map(str, sorted(replaced))))
        for before in own:
            after = other.use()
            assert not replaced & set(after)
            assert len(after) == len(before)
            kept = [(a, b) for a, b in zip(before, after, strict=True) if a not in replaced]
            assert all(a == b for a, b in kept)


def test_what_is_read_ahead_and_not_used_is_not_counted():
    run = Consumer(lambda: DataLoader(list(range(20)), 2), 4)
    assert [run.use() for _ in range(3)] == [(0, 1), (2, 3), (4, 5)]
    run.read()
    assert len(run.waiting) == 4
    assert run.watch.state_dict()["used"] == 3


def test_a_loader_is_left_as_it_was():
    loader = DataLoader(list(range(20)), 2, num_workers=1)
    own = dict(vars(loader))
    watch = LoaderWatch(loader, Run(RunSettings(name="test")))
    assert loader.batch_sampler is not own["batch_sampler"]
    watch.remove()
    assert vars(loader) == own


class Told(Sampler[int]):
    """Wants to know the epoch."""

    def __init__(self):
        self.epochs = []

    def set_epoch(self, epoch):
        self.epochs.append(epoch)

    def __iter__(self):
        return iter(range(4))

    def __len__(self):
        return 4


@pytest.mark.parametrize("given_as", ["sampler", "batch_sampler", "inside", "dataset"])
def test_the_number_of_a_pass_is_told_once_to_whoever_asks(given_as):
    told = Told()
    loader = {
        "sampler": lambda: DataLoader([1, 2, 3, 4], 2, sampler=told),
        "batch_sampler": lambda: DataLoader([1, 2, 3, 4], batch_sampler=told),
        "inside": lambda: DataLoader([1, 2, 3, 4], batch_sampler=BatchSampler(told, 2, False)),
        "dataset": lambda: DataLoader(told, 2),
    }[given_as]()
    for number in range(3):
        begin_pass(loader, number)
    assert told.epochs == [0, 1, 2]
