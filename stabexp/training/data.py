"""Which samples a step sees, as a pure function of the seed and of how many were seen before.

So any step can be reached at once, without replaying the data before it, and every step's sample
ids are known. There is no sampler state that could be forgotten in a checkpoint, and a loader whose
workers prepare batches ahead cannot run away from it: only *consumed* samples are counted.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler
from torch.utils.data import default_collate as collate_samples

from stabexp.errors import NotReplayableError


class SampleOrder:
    """The order in which the samples of a map-style dataset are shown, pass after pass."""

    def __init__(
        self,
        size: int,
        *,
        seed: int,
        shuffle: bool = True,
        salt: int = 0,
        replaced: frozenset[int] = frozenset(),
    ) -> None:
        """Fix the order of a dataset of `size` samples.

        `salt` selects another order for the same seed; 0 is the run's own. In place of each
        `replaced` sample the next one in the dataset is shown that is none of them.
        """
        if size < 1:
            raise NotReplayableError("the dataset is empty; a training needs at least one sample")
        self.size, self.seed, self.shuffle, self.salt = size, seed, shuffle, salt
        self._instead = substitutes(replaced, size)
        self._pass = lru_cache(maxsize=4)(self._permutation)

    def _permutation(self, number: int) -> list[int]:
        if not self.shuffle and self.salt == 0:
            return list(range(self.size))
        stream = np.random.Generator(np.random.PCG64([self.seed, self.salt, number]))
        order: list[int] = stream.permutation(self.size).tolist()
        return order

    def ids(self, position: int, count: int) -> list[int]:
        """Return the ids of the `count` samples after the first `position` ones."""
        result: list[int] = []
        while len(result) < count:
            number, offset = divmod(position + len(result), self.size)
            result += self._pass(number)[offset : offset + count - len(result)]
        return [self._instead.get(i, i) for i in result] if self._instead else result


def substitutes(replaced: frozenset[int], size: int) -> dict[int, int]:
    """Return, for every sample to be replaced, the next one in the dataset that stays."""
    if len(replaced & set(range(size))) == size:
        raise NotReplayableError("every sample of the dataset is to be replaced; leave some")
    found = {}
    for sample in replaced:
        other = (sample + 1) % size
        while other in replaced:
            other = (other + 1) % size
        found[sample] = other
    return found


class BatchSource:
    """Batches of a map-style dataset from any position on."""

    def __init__(self, data: Any, *, batch_size: int | None, workers: int, seed: int) -> None:
        """Take a dataset or a DataLoader over one.

        Raises:
            NotReplayableError: If the order of the data cannot be reproduced from a position.
        """
        self.collate: Any = collate_samples
        self.shuffle = True
        self.workers = workers
        self.seed = seed
        self.batch_size = batch_size
        if isinstance(data, DataLoader):
            data = self._from_loader(data)
        if isinstance(data, IterableDataset) or not (
            hasattr(data, "__len__") and hasattr(data, "__getitem__")
        ):
            raise NotReplayableError(
                f"run.steps: {type(data).__name__} has no length and no index, so no step can be "
                "reached again; pass a map-style dataset or a DataLoader over one"
            )
        if self.batch_size is None or self.batch_size < 1:
            raise NotReplayableError("run.steps: the batch size is not known; pass batch_size=")
        self.dataset = data

    def _from_loader(self, loader: DataLoader[Any]) -> Any:
        if isinstance(loader.dataset, IterableDataset):
            return loader.dataset  # refused by the caller, like any other without an index
        if loader.batch_sampler is None:
            raise NotReplayableError(
                "run.steps: the loader makes no batches (batch_size=None); pass the dataset itself "
                "with batch_size="
            )
        sampler = loader.sampler if loader.batch_size else loader.batch_sampler
        whole = isinstance(sampler, SequentialSampler) or (
            isinstance(sampler, RandomSampler)
            and not sampler.replacement
            and sampler.num_samples == len(loader.dataset)  # type: ignore[arg-type]
        )
        if not whole:
            raise NotReplayableError(
                f"run.steps: the loader's {type(sampler).__name__} decides the order and cannot be "
                "set to a position; pass the dataset itself with batch_size=, or a DataLoader with "
                "shuffle=True/False"
            )
        self.collate = loader.collate_fn
        self.shuffle = isinstance(loader.sampler, RandomSampler)
        self.workers = loader.num_workers
        self.batch_size = loader.batch_size
        return loader.dataset

    def order(self, *, salt: int, replaced: frozenset[int] = frozenset()) -> SampleOrder:
        """Return the order of the samples; `salt` and `replaced` as in `SampleOrder`."""
        return SampleOrder(
            len(self.dataset),
            seed=self.seed,
            shuffle=self.shuffle,
            salt=salt,
            replaced=replaced,
        )

    def batches(
        self,
        order: SampleOrder,
        *,
        position: int,
        size: int,
        first: Sequence[Sequence[int]] = (),
    ) -> Iterator[tuple[list[int], Any]]:
        """Yield (sample ids, batch) without end, from `position` samples on, `size` at a time.

        The batches of `first`, given by their sample ids, come before all others.
        """
        for ids in first:
            yield list(ids), self._read(ids)
        if self.workers:
            yield from self._prepared_ahead(order, position, size)
        while True:
            ids = order.ids(position, size)
            position += size
            yield ids, self._read(ids)

    def _read(self, ids: Sequence[int]) -> Any:
        batch = getattr(self.dataset, "batch", None)
        return batch(list(ids)) if batch else self.collate([self.dataset[i] for i in ids])

    def _prepared_ahead(
        self, order: SampleOrder, position: int, size: int
    ) -> Iterator[tuple[list[int], Any]]:
        plan = _Plan(order, position, size)
        loader: DataLoader[Any] = DataLoader(
            _Seeded(self.dataset, self.seed),  # type: ignore[arg-type]
            batch_sampler=plan,
            num_workers=self.workers,
            collate_fn=self.collate,
            # A generator of its own: the default one would draw from the training's random stream.
            generator=torch.Generator().manual_seed(self.seed),
        )
        for batch in loader:
            yield order.ids(position, size), batch
            position += size


class _Plan:
    """Endless list of batches of (position, sample id)."""

    def __init__(self, order: SampleOrder, position: int, size: int) -> None:
        self.order, self.position, self.size = order, position, size

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        position = self.position
        while True:
            ids = self.order.ids(position, self.size)
            yield list(zip(range(position, position + self.size), ids, strict=True))
            position += self.size


class _Seeded:
    """A dataset whose random augmentation depends on the position alone, not on the worker."""

    def __init__(self, dataset: Any, seed: int) -> None:
        self.dataset, self.seed = dataset, seed

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, key: tuple[int, int]) -> Any:
        position, index = key
        seed = int(np.random.SeedSequence([self.seed, position]).generate_state(1)[0])
        random.seed(seed)
        np.random.seed(seed)
        # 80 times faster than torch.manual_seed, which prepares devices a worker never uses.
        torch.default_generator.manual_seed(seed)
        return self.dataset[index]
