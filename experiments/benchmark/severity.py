"""How hard a fault must strike in each program, as measured without any bisect.

`python -m experiments.benchmark.validate` shows what these figures do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

AT_ONCE: Mapping[str, float] = {
    "autoencoder": 16,
    "batchnorm": 512,
    "gpt_post": 24,
    "gpt_pre": 512,
    "lora": 512,
    "recommender": 16,
    "residual": 64,
    "rnn": 32,
    "vit": 256,
}
"""Multiple of the healthy rate that a program does not bear after 30 steps of warmup."""

CREEPING: Mapping[str, float] = {
    "autoencoder": 20,
    "batchnorm": 300,
    "cnn": 20,
    "gpt_post": 20,
    "gpt_pre": 256,
    "lora": 120,
    "recommender": 10,
    "residual": 80,
    "rnn": 16,
    "vae": 256,
    "vit": 128,
}
"""Multiple that it does not bear after 300 steps of warmup."""

CONFIDENT: Mapping[str, tuple[float, float]] = {
    "batchnorm": (8, 2.0),
    "lora": (5, 2.0),
    "mlp": (8, 2.0),
    "residual": (3, 5.0),
}
"""Multiple of the rate, and gain of the logits, with which a program soon is sure of itself."""

EDGE: Mapping[str, Sequence[tuple[int, float, int]]] = {
    "autoencoder": [(8, 3.11, 4652), (16, 4.28, 4092), (8, 3.26, 1673)],
    "rnn": [(16, 6.16, 7742), (16, 5.32, 197), (16, 5.97, 7156)],
}
"""Batch, multiple of the rate and seed of runs that diverge, while at least two of four other
orders of the same data train through: no detector fires, and the loss falls by a tenth at least.
Searched for, because such runs are rare."""

JUMP: Mapping[str, float] = {
    "autoencoder": 10,
    "batchnorm": 12,
    "cnn": 12,
    "gpt_post": 20,
    "gpt_pre": 100,
    "lora": 20,
    "lstm": 130,
    "mlp": 20,
    "residual": 12,
    "rnn": 16,
    "two_tower": 32,
    "recommender": 16,
    "vae": 100,
    "vit": 80,
}
"""Multiple of the rate that it does not bear when it is half trained."""

TINY: Mapping[str, tuple[int, float, float]] = {
    "autoencoder": (2, 2.0, 4.0),
    "rnn": (1, 4.0, 6.0),
}
"""Batch, and multiples of the rate, that diverge with it and not with sixteen times as many."""
