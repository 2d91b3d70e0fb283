"""Numbers in every spelling that logs have."""

from __future__ import annotations

import math

import pytest

from stabexp.diagnosis.numbers import is_empty, number, step_number


@pytest.mark.parametrize(
    "text", ["nan", "NaN", " NAN ", "-nan", '"nan"', "'NaN'", "1.#QNAN", "-1.#IND", "tensor(nan)"]
)
def test_reads_as_nan(text):
    assert math.isnan(number(text))


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("1e-3", 1e-3),
        (" 2.5 ", 2.5),
        (7, 7.0),
        ("inf", math.inf),
        ("+Infinity", math.inf),
        ("-inf", -math.inf),
        ("1.#INF", math.inf),
        ("1e999", math.inf),
        (10**400, math.inf),
        (-(10**400), -math.inf),
        ("tensor(0.6931, grad_fn=<MeanBackward0>)", 0.6931),
        ("tensor([0.5], device='cuda:0')", 0.5),
        ("np.float64(0.25)", 0.25),
    ],
)
def test_reads_as_a_number(cell, value):
    assert number(cell) == value


@pytest.mark.parametrize("cell", ["", "abc", "1,5", "1_0", "--1", "+-inf", True, None, [1], "0x1"])
def test_holds_no_number(cell):
    assert number(cell) is None


@pytest.mark.parametrize(("cell", "step"), [("10", 10), ("10.0", 10), (3.0, 3), (-1, -1)])
def test_reads_as_a_step(cell, step):
    assert step_number(cell) == step


@pytest.mark.parametrize("cell", ["1.5", "nan", "inf", "1e300", "", None, "one"])
def test_is_no_step(cell):
    assert step_number(cell) is None


@pytest.mark.parametrize("cell", ["", "  ", None, "null", "None", "N/A"])
def test_says_that_there_is_nothing(cell):
    assert is_empty(cell)


@pytest.mark.parametrize("cell", ["nan", 0, 0.0, "0", "nothing at all there"])
def test_says_something(cell):
    assert not is_empty(cell)
