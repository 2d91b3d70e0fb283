"""Every program family of the benchmark by name: one file, one small real training each."""

from __future__ import annotations

import importlib

from experiments.benchmark.programs.base import BenchmarkTask, Recipe

FAMILIES: dict[str, str] = {
    "autoencoder": "autoencoder:Autoencoder",
    "batchnorm": "batchnorm:BatchNormNet",
    "cnn": "cnn:ConvolutionalNet",
    "gpt_post": "gpt_post:PostNormGPT",
    "gpt_pre": "gpt_pre:PreNormGPT",
    "lora": "lora:LowRankAdapter",
    "lstm": "lstm:CharacterLSTM",
    "mlp": "mlp:Perceptron",
    "residual": "residual:ResidualNet",
    "rnn": "rnn:CharacterRNN",
    "two_tower": "two_tower:TwoTowers",
    "recommender": "recommender:Recommender",
    "vae": "vae:VariationalAutoencoder",
    "vit": "vit:VisionTransformer",
}
"""Family → "module:Class" in this package."""


def family(name: str) -> type[BenchmarkTask]:
    """Return the task class of a family.

    Raises:
        KeyError: If there is no such family.
    """
    module, _, kind = FAMILIES[name].partition(":")
    found: type[BenchmarkTask] = getattr(importlib.import_module(f"{__name__}.{module}"), kind)
    return found


__all__ = ["FAMILIES", "BenchmarkTask", "Recipe", "family"]
