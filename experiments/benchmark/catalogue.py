"""The list of faults: what each is, in which programs, and what would set it right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from experiments.benchmark import makers
from experiments.benchmark.faults import implementation as code
from experiments.benchmark.faults.base import Fault
from experiments.benchmark.faults.data import ShuffledLabels
from experiments.benchmark.faults.initialisation import DeadUnits
from experiments.benchmark.place import Maker
from experiments.benchmark.severity import AT_ONCE, CONFIDENT, CREEPING, EDGE, JUMP, TINY

DIGITS = ("mlp", "cnn", "batchnorm", "residual", "lora")
TEXT = ("gpt_pre", "gpt_post", "lstm", "rnn")
SGD = ("mlp", "cnn", "batchnorm", "gpt_post", "rnn", "autoencoder", "recommender")
ADAM = ("gpt_pre", "lstm", "two_tower", "lora", "residual", "vae", "vit")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One fault and the programs it is put into."""

    name: str
    cause: str
    fault: Maker
    families: tuple[str, ...]
    draws: int = 2
    """Draws per family."""
    fixed: Maker = lambda place: Fault()
    also: Mapping[str, str] = field(default_factory=dict)
    """Other causes that are as right, each with the reason."""


_BLAMES_SAMPLE = "the sample itself is broken: leaving it out is as right as mending the code"
_IS_A_RATE = "the update is that of a rate so many times higher; one run cannot tell them apart"

_IN_THE_LOSS = "the operation at fault stands in the loss: both name the same line"
_BLANK = {"data": _BLAMES_SAMPLE, "loss_function": _IN_THE_LOSS}

ENTRIES: tuple[Entry, ...] = (
    Entry(
        name="rate_too_high",
        cause="learning_rate",
        fault=makers.rate_too_high,
        families=tuple(AT_ONCE),
    ),
    Entry(
        name="rate_creeping",
        cause="learning_rate",
        fault=makers.rate_creeping,
        families=tuple(CREEPING),
    ),
    Entry(
        name="sharp_start",
        cause="warmup",
        fault=makers.sharp_start(0),
        fixed=makers.sharp_start(100),
        draws=5,
        families=("autoencoder", "gpt_post"),
    ),
    Entry(name="rate_jump", cause="schedule", fault=makers.rate_jump, families=tuple(JUMP)),
    Entry(
        name="tiny_batch",
        cause="batch_size",
        fault=makers.tiny_batch(True),
        fixed=makers.tiny_batch(False),
        draws=5,
        families=tuple(TINY),
    ),
    Entry(
        name="unclipped",
        cause="clip_norm",
        fault=makers.heavy(None),
        fixed=makers.heavy(0.5),
        draws=3,
        families=("mlp", "cnn", "batchnorm", "autoencoder", "rnn", "gpt_post", "recommender"),
    ),
    Entry(
        name="first_moment",
        cause="optimizer_state",
        fault=makers.first_moment,
        families=(*SGD, "gpt_pre", "vit"),
    ),
    Entry(name="second_moment", cause="optimizer_state", fault=makers.second_moment, families=ADAM),
    Entry(
        name="overflow",
        cause="precision",
        fault=makers.overflow("fp16_unscaled"),
        families=(*DIGITS, *TEXT, "vit", "vae"),
    ),
    Entry(
        name="overflow_scaled",
        cause="precision",
        fault=makers.overflow("fp16"),
        families=(*DIGITS, "gpt_post"),
    ),
    Entry(
        name="adam_in_half",
        cause="precision",
        fault=makers.adam_in_half,
        draws=1,
        families=(*DIGITS, "gpt_pre", "vit"),
    ),
    Entry(
        name="own_softmax",
        cause="loss_function",
        fault=makers.own_softmax,
        families=(*DIGITS, *TEXT, "vit", "recommender"),
    ),
    Entry(
        name="own_cross_entropy",
        cause="loss_function",
        fault=makers.own_cross_entropy(True),
        fixed=makers.own_cross_entropy(False),
        draws=3,
        families=tuple(CONFIDENT),
    ),
    Entry(
        name="length_of_blank",
        cause="implementation",
        fault=makers.blank(code.LengthOfBlank),
        fixed=makers.only_blank,
        families=("mlp", "batchnorm", "residual", "autoencoder", "vae"),
        also=_BLANK,
    ),
    Entry(
        name="log_of_blank",
        cause="implementation",
        fault=makers.blank(code.LogOfBlank),
        fixed=makers.only_blank,
        families=("mlp", "batchnorm", "residual", "autoencoder", "vae"),
        also=_BLANK,
    ),
    Entry(
        name="masked_row",
        cause="implementation",
        fault=makers.blank(code.MaskedRow),
        fixed=makers.only_blank,
        families=TEXT,
        also=_BLANK,
    ),
    Entry(
        name="no_positives",
        cause="implementation",
        fault=lambda place: code.NoPositives(label=int(10 * place.severity)),
        also={"loss_function": _IN_THE_LOSS},
        draws=1,
        families=(*DIGITS, "vit"),
    ),
    Entry(
        name="not_zeroed", cause="implementation", fault=makers.not_zeroed, draws=1, families=SGD
    ),
    Entry(
        name="not_divided",
        cause="implementation",
        fault=makers.not_divided,
        families=("autoencoder", "recommender", "rnn", "gpt_post"),
        also={"learning_rate": _IS_A_RATE},
    ),
    Entry(
        name="softmax_twice",
        cause="implementation",
        fault=lambda place: code.SoftmaxTwice(),
        draws=1,
        families=(*TEXT, "recommender"),
    ),
    Entry(
        name="frozen",
        cause="implementation",
        fault=lambda place: code.Frozen(),
        draws=1,
        families=(*DIGITS, "gpt_pre", "gpt_post", "vit"),
    ),
    Entry(
        name="broadcast",
        cause="implementation",
        fault=makers.spread(True),
        fixed=makers.spread(False),
        families=("autoencoder",),
    ),
    Entry(
        name="layer_too_large",
        cause="initialisation",
        fault=makers.layer_too_large,
        fixed=makers.flat,
        draws=4,
        families=("mlp", "cnn"),
    ),
    Entry(
        name="wide_start",
        cause="initialisation",
        fault=makers.wide_start(),
        fixed=makers.wide_start(0.1),
        draws=3,
        families=("gpt_post", "gpt_pre", "vit"),
    ),
    Entry(
        name="weight_decay",
        cause="weight_decay",
        fault=makers.weight_decay,
        families=(*SGD, "residual", "gpt_pre"),
    ),
    Entry(
        name="shuffled_labels",
        cause="not_learning",
        fault=lambda place: ShuffledLabels(),
        draws=1,
        families=(*DIGITS, "vit"),
    ),
    Entry(
        name="dead_units",
        cause="not_learning",
        fault=lambda place: DeadUnits(),
        draws=1,
        families=("mlp", "cnn", "vae"),
    ),
    Entry(
        name="huge_sample",
        cause="data",
        fault=makers.broken("huge"),
        families=(
            "mlp",
            "cnn",
            "batchnorm",
            "autoencoder",
            "rnn",
            "gpt_post",
            "lora",
            "vit",
        ),
    ),
    Entry(
        name="nan_sample",
        cause="data",
        fault=makers.broken("nan"),
        draws=1,
        families=(*DIGITS, *TEXT, "two_tower", "vae", "vit"),
    ),
    Entry(
        name="wrong_label",
        cause="data",
        fault=makers.broken("label"),
        families=("mlp", "cnn", "gpt_post", "rnn", "recommender"),
    ),
    Entry(
        name="data_and_schedule",
        cause="joint",
        fault=makers.joint("data and schedule"),
        families=("mlp", "cnn", "gpt_post", "rnn", "batchnorm", "vit"),
    ),
    Entry(
        name="state_and_data",
        cause="joint",
        fault=makers.joint("state and data"),
        families=("mlp", "cnn", "gpt_post", "rnn", "autoencoder"),
    ),
    Entry(
        name="at_the_edge",
        cause="marginal",
        fault=makers.at_the_edge(),
        fixed=makers.at_the_edge(0.2),
        draws=3,
        families=tuple(EDGE),
    ),
    Entry(
        name="bit_flips",
        cause="not_reproduced",
        fault=makers.flips,
        families=("mlp", "cnn", "gpt_post", "rnn", "autoencoder", "gpt_pre", "vae"),
    ),
    Entry(
        name="nothing_helps",
        cause="inconclusive",
        fault=makers.nothing_helps,
        draws=1,
        families=("mlp", "cnn", "gpt_post", "rnn", "autoencoder", "vit"),
        also={"joint": "it is several faults at once"},
    ),
    Entry(
        name="healthy",
        cause="healthy",
        fault=lambda place: Fault(),
        draws=2,
        families=(*DIGITS, *TEXT, "two_tower", "autoencoder", "recommender", "vae", "vit"),
    ),
)
"""Every fault, in the order of the tables."""
