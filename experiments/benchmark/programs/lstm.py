"""A long short-term memory network predicts the next character."""

from __future__ import annotations

from torch import nn

from experiments.benchmark.programs.base import BenchmarkTask, Dataset, Recipe
from experiments.benchmark.programs.inputs import text_samples
from stabexp.tasks.lstm import LSTM
from stabexp.tasks.text import VOCABULARY

CONTEXT = 12


class CharacterLSTM(BenchmarkTask):
    """Text with an LSTM, AdamW and clipping."""

    healthy = Recipe(optimizer={"name": "adamw", "lr": 0.005}, clip=1.0, batch=16, expected=3.4)
    wide = "head"
    samples = 16_000

    def dataset(self) -> Dataset:
        return text_samples(CONTEXT)

    def model(self) -> nn.Module:
        return LSTM(width=32, context=CONTEXT).model()

    def class_count(self) -> int:
        return VOCABULARY
