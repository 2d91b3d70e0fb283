"""A GPT with LayerNorm after each addition, as in 2017, predicts the next character."""

from __future__ import annotations

from torch import nn

from experiments.benchmark.programs.base import BenchmarkTask, Dataset, Recipe
from experiments.benchmark.programs.inputs import text_samples
from stabexp.tasks.gpt import GPT
from stabexp.tasks.text import VOCABULARY

CONTEXT = 16


class PostNormGPT(BenchmarkTask):
    """Text with the original layout and SGD."""

    healthy = Recipe(
        optimizer={"name": "sgd", "lr": 0.05, "momentum": 0.9}, warmup=40, batch=16, expected=3.4
    )
    wide = "head"
    samples = 16_000

    def dataset(self) -> Dataset:
        return text_samples(CONTEXT)

    def model(self) -> nn.Module:
        task = GPT(width=24, layers=2, heads=2, context=CONTEXT, norm="post", init_std=0.1)
        return task.model()

    def class_count(self) -> int:
        return VOCABULARY
