"""An embedding recommender: which word follows which in the source of the standard library.

The interactions are real (every pair of neighbouring words); a word is a user on the left and an
item on the right, as in matrix factorisation.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

import torch
from torch import Tensor, nn

from experiments.benchmark.programs.base import BenchmarkTask, Dataset, Recipe
from stabexp.tasks.data import InMemory
from stabexp.tasks.text import CHARACTERS, tokens

WORDS = 200
"""The most frequent words; every other one is item 0."""
PAIRS = 20_000


@cache
def pairs() -> tuple[Tensor, Tensor]:
    """Return left and right words of neighbours: (PAIRS,) int64 each. Do not write."""
    text = "".join((CHARACTERS + "?")[token] for token in tokens().tolist())
    words = re.findall(r"\w+|[^\w\s]", text)
    usual = [word for word, _ in Counter(words).most_common(WORDS - 1)]
    numbers = {word: index for index, word in enumerate(usual, start=1)}
    row = torch.tensor([numbers.get(word, 0) for word in words[: PAIRS + 1]])
    return row[:-1], row[1:]


class Factors(nn.Module):
    """(batch,) users → (batch, WORDS) scores of items."""

    def __init__(self) -> None:
        super().__init__()
        self.users = nn.Embedding(WORDS, 24)
        self.items = nn.Linear(24, WORDS)
        nn.init.normal_(self.users.weight, std=0.5)

    def forward(self, users: Tensor) -> Tensor:
        scores: Tensor = self.items(self.users(users))
        return scores


class Recommender(BenchmarkTask):
    """Pairs of words, softmax over all items, with SGD."""

    healthy = Recipe(optimizer={"name": "sgd", "lr": 0.5, "momentum": 0.9}, batch=32, expected=3.9)
    wide = "items"
    samples = PAIRS

    def dataset(self) -> Dataset:
        left, right = pairs()
        return InMemory(left, right, torch.ones(len(left)))

    def model(self) -> nn.Module:
        return Factors()

    def class_count(self) -> int:
        return WORDS
