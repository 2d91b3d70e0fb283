"""The order of the data is a pure function, whoever reads it; an unknown order is refused."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from stabexp.errors import NotReplayableError
from stabexp.training.data import BatchSource, SampleOrder

sizes = st.integers(1, 40)
seeds = st.integers(0, 2**63 - 1)
positions = st.integers(0, 10**12)
counts = st.integers(0, 100)


@given(sizes, seeds, positions, counts, counts)
def test_two_reads_in_a_row_are_one_longer_read(size, seed, position, first, second):
    order = SampleOrder(size, seed=seed)
    joined = order.ids(position, first) + order.ids(position + first, second)
    assert joined == order.ids(position, first + second)
    assert len(joined) == first + second


@given(sizes, seeds, st.integers(0, 10**9), st.integers(0, 9))
def test_every_pass_shows_every_sample_once(size, seed, number, salt):
    order = SampleOrder(size, seed=seed, salt=salt)
    assert sorted(order.ids(number * size, size)) == list(range(size))


@given(sizes, positions, counts, st.tuples(seeds, st.integers(0, 9), st.booleans()))
def test_another_object_gives_the_same_ids_in_any_order_of_asking(size, position, count, options):
    seed, salt, shuffle = options
    one = SampleOrder(size, seed=seed, salt=salt, shuffle=shuffle)
    other = SampleOrder(size, seed=seed, salt=salt, shuffle=shuffle)
    other.ids(position + 5 * size, 3 * size)
    assert one.ids(position, count) == other.ids(position, count)


def test_order_does_not_touch_the_global_random_streams():
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    SampleOrder(50, seed=1).ids(0, 500)
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def test_seed_salt_and_pass_each_give_another_order():
    orders = [
        SampleOrder(50, seed=1).ids(0, 50),
        SampleOrder(50, seed=2).ids(0, 50),
        SampleOrder(50, seed=1, salt=1).ids(0, 50),
        SampleOrder(50, seed=1, salt=2).ids(0, 50),
        SampleOrder(50, seed=1).ids(50, 50),
    ]
    assert len({tuple(order) for order in orders}) == len(orders)


def test_unshuffled_is_in_order_unless_another_order_is_asked_for():
    assert SampleOrder(4, seed=1, shuffle=False).ids(2, 5) == [2, 3, 0, 1, 2]
    salted = SampleOrder(30, seed=1, shuffle=False, salt=1).ids(0, 30)
    assert salted != list(range(30))
    assert sorted(salted) == list(range(30))


DATA = TensorDataset(torch.arange(23).float(), torch.arange(23) * 2)


def read(data, count, *, position=0, workers=0, batch_size=5, salt=0, seed=4):
    source = BatchSource(data, batch_size=batch_size, workers=workers, seed=seed)
    assert source.batch_size is not None
    batches = source.batches(source.order(salt=salt), position=position, size=source.batch_size)
    try:
        return [next(batches) for _ in range(count)]
    finally:
        batches.close()


def test_workers_prepare_the_same_batches_from_any_position():
    for position in (0, 17, 46):
        alone = read(DATA, 7, position=position)
        prepared = read(DATA, 7, position=position, workers=2)
        for (ids, batch), (other_ids, other) in zip(alone, prepared, strict=True):
            assert ids == other_ids == batch[0].int().tolist()
            assert all(torch.equal(a, b) for a, b in zip(batch, other, strict=True))


class Noisy:
    """Draws from all three global streams while a sample is read."""

    def __len__(self):
        return 23

    def __getitem__(self, index):
        noise = torch.rand(()).item(), random.random(), float(np.random.rand())
        return torch.tensor([index, *noise], dtype=torch.float64)


def test_random_augmentation_in_workers_depends_on_the_position_alone():
    whole = read(Noisy(), 8, workers=2)
    later = read(Noisy(), 5, position=15, workers=1)
    for (_, batch), (_, other) in zip(whole[3:], later, strict=True):
        assert torch.equal(batch, other)
    noise = torch.cat([batch for _, batch in whole])[:, 1:]
    assert len(set(noise.flatten().tolist())) == noise.numel()
    assert not torch.equal(read(Noisy(), 1, workers=1, seed=5)[0][1], whole[0][1])


def test_workers_leave_the_training_processs_random_streams_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    read(Noisy(), 3, workers=2)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_loader_gives_its_dataset_batch_size_order_and_collation():
    loader = DataLoader(
        DATA, batch_size=6, shuffle=False, collate_fn=lambda samples: [s[0] for s in samples]
    )
    ids, batch = read(loader, 1, batch_size=99)[0]
    assert ids == list(range(6)) == [int(x) for x in batch]
    shuffled = DataLoader(DATA, batch_size=6, shuffle=True)
    seen = [i for ids, _ in read(shuffled, 23, batch_size=None) for i in ids]
    assert Counter(seen) == dict.fromkeys(range(23), 6)
    assert read(shuffled, 3)[0][0] == read(DATA, 3, batch_size=6)[0][0]
    assert read(DataLoader(Subset(DATA, [7, 8]), batch_size=2), 1)[0][1][0].tolist() == [7, 8]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(9))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(Stream(), "Stream has no length and no index", id="iterable"),
        pytest.param(
            DataLoader(Stream()), "Stream has no length and no index", id="loader over an iterable"
        ),
        pytest.param((i for i in range(9)), "generator has no length and no index", id="generator"),
        pytest.param(
            DataLoader(DATA, sampler=WeightedRandomSampler([1.0] * 23, 23)),
            "the loader's WeightedRandomSampler decides the order",
            id="weighted sampler",
        ),
        pytest.param(
            DataLoader(DATA, sampler=SubsetRandomSampler(range(3))),
            "the loader's SubsetRandomSampler decides the order",
            id="subset sampler",
        ),
        pytest.param(
            DataLoader(DATA, sampler=RandomSampler(DATA, replacement=True)),
            "the loader's RandomSampler decides the order",
            id="with replacement",
        ),
        pytest.param(
            DataLoader(DATA, sampler=RandomSampler(DATA, num_samples=7)),
            "the loader's RandomSampler decides the order",
            id="part of each pass",
        ),
        pytest.param(
            DataLoader(DATA, batch_sampler=[[0, 1], [2]]),
            "the loader's list decides the order",
            id="batch sampler",
        ),
        pytest.param(
            DataLoader(DATA, batch_size=None), "the loader makes no batches", id="not batched"
        ),
        pytest.param([], "the dataset is empty", id="empty"),
    ],
)
def test_data_whose_order_cannot_be_set_to_a_position_is_refused(data, message):
    with pytest.raises(NotReplayableError, match=message):
        read(data, 1)
