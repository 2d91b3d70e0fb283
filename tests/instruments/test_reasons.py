"""The reason follows from what the inputs were like, and every reason has words for people."""

from __future__ import annotations

import itertools

import pytest

from stabexp.instruments.reason_words import WORDS
from stabexp.instruments.reasons import Circumstances, Numbers, reason_for

ZERO = Numbers(dtype="float32", shape=(3,), smallest=0.0, largest=0.0, zeros=3)
ONE = Numbers(dtype="float32", shape=(3,), smallest=1.0, largest=1.0)
NEGATIVE = Numbers(dtype="float32", shape=(3,), smallest=-2.0, largest=1.0, negatives=2)
HUGE = Numbers(dtype="float32", shape=(3,), smallest=1.0, largest=1e30)
INFINITE = Numbers(dtype="float32", shape=(3,), infinities=3)
NOTHING = Numbers(dtype="float32", shape=(0,))


def reason(operation, *inputs, kind="nan", phase="forward", dtype="float32"):
    found = Circumstances(operation=operation, phase=phase, kind=kind, inputs=inputs, dtype=dtype)
    return reason_for(found)


@pytest.mark.parametrize(
    ("operation", "inputs", "options", "expected"),
    [
        ("log", [ZERO], {"kind": "inf"}, "log_of_zero"),
        ("log", [NEGATIVE], {}, "log_of_negative"),
        ("log1p", [NEGATIVE], {}, "log_of_negative"),
        ("div", [ONE, ZERO], {"kind": "inf"}, "division_by_zero"),
        ("div", [ZERO, ZERO], {}, "zero_over_zero"),
        ("div", [HUGE, ONE], {"kind": "inf"}, "overflow"),
        ("div", [INFINITE, INFINITE], {}, "inf_over_inf"),
        ("mul", [INFINITE, ZERO], {}, "zero_times_inf"),
        ("sub", [INFINITE, INFINITE], {}, "inf_minus_inf"),
        ("mean", [NOTHING], {}, "empty_mean"),
        ("matmul", [HUGE, HUGE], {}, "overflow"),
        ("matmul", [ONE, ONE], {"kind": "inf", "dtype": "float16"}, "fp16_overflow"),
        ("layer_norm", [ONE], {}, "zero_variance"),
        ("layer_norm", [HUGE], {}, "overflow"),
        ("std", [ONE], {}, "std_of_one"),
        ("std", [ONE], {"phase": "backward"}, "std_at_zero"),
        ("addcdiv", [ONE, ONE, ZERO], {"phase": "optimizer"}, "update_division"),
        ("reciprocal", [ZERO], {"phase": "scaler", "kind": "inf"}, "scaler"),
        ("frobnicate", [ONE], {}, "invalid_operation"),
    ],
)
def test_reason(operation, inputs, options, expected):
    assert reason(operation, *inputs, **options) == expected


def test_every_reason_that_can_be_given_has_words():
    operations = {name for words in WORDS.values() for name in words.operations}
    operations |= {"matmul", "to", "digamma", "linalg_svd", "addcdiv", "adam", "tan"}
    inputs = [(ZERO, ZERO), (ONE, ZERO), (HUGE, HUGE), (INFINITE, ZERO), (NOTHING,), (NEGATIVE,)]
    phases = ("forward", "backward", "optimizer", "scaler")
    for name, given, phase, kind in itertools.product(operations, inputs, phases, ("nan", "inf")):
        assert reason(name, *given, phase=phase, kind=kind) in WORDS


def test_words_are_sentences():
    for words in WORDS.values():
        assert words.explanation.endswith(".")
        assert words.remedy.endswith(".")


def test_numbers_are_described_in_a_line():
    mixed = Numbers(
        dtype="float16", shape=(2, 3), smallest=-1.5, largest=2.0, zeros=1, infinities=2, nans=1
    )
    assert mixed.text() == "float16[2, 3] -1.5 to 2, 1 zero, 2 infs, 1 NaN"
