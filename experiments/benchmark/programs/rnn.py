"""A plain recurrent network predicts the next character."""

from __future__ import annotations

from torch import nn

from experiments.benchmark.programs.base import BenchmarkTask, Dataset, Recipe
from experiments.benchmark.programs.inputs import text_samples
from stabexp.tasks.rnn import RNN
from stabexp.tasks.text import VOCABULARY

CONTEXT = 12


class CharacterRNN(BenchmarkTask):
    """Text with a recurrent net and SGD."""

    healthy = Recipe(optimizer={"name": "sgd", "lr": 0.2, "momentum": 0.9}, batch=16, expected=3.4)
    wide = "head"
    samples = 16_000

    def dataset(self) -> Dataset:
        return text_samples(CONTEXT)

    def model(self) -> nn.Module:
        return RNN(width=32, context=CONTEXT).model()

    def class_count(self) -> int:
        return VOCABULARY
