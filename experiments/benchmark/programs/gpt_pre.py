"""A GPT with LayerNorm before each branch predicts the next character."""

from __future__ import annotations

from torch import nn

from experiments.benchmark.programs.base import BenchmarkTask, Dataset, Recipe
from experiments.benchmark.programs.inputs import text_samples
from stabexp.tasks.gpt import GPT
from stabexp.tasks.text import VOCABULARY

CONTEXT = 16


class PreNormGPT(BenchmarkTask):
    """Text with GPT-2's layout and AdamW."""

    healthy = Recipe(
        optimizer={"name": "adamw", "lr": 0.003, "weight_decay": 0.01},
        warmup=30,
        clip=1.0,
        batch=16,
        expected=3.4,
    )
    wide = "head"
    samples = 16_000

    def dataset(self) -> Dataset:
        return text_samples(CONTEXT)

    def model(self) -> nn.Module:
        return GPT(width=32, layers=2, heads=2, context=CONTEXT, norm="pre").model()

    def class_count(self) -> int:
        return VOCABULARY
