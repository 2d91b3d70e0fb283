"""A wider format that cures is blamed only when a number was seen to be lost."""

from __future__ import annotations

import pytest
from bisection.scripted_facts import FAILED, WIDER, control, cut_short, facts, ladder, seen

from stabexp.bisection.evidence import half_precision

LOST = [
    ("fp16", "half_activation_nonfinite", 1, "activation overflowed"),
    ("fp16", "half_activation_absmax", 2.1e4, "reached 21,000 of at most 65,504"),
    ("pure_bf16", "update_nonfinite_first", 1, "update computed in half precision"),
    ("fp16", "skipped_share", 0.21, "left out 21% of the updates"),
    ("bf16", "half_zero_gradient_share", 0.61, "61% of the gradient elements"),
]
KEPT = [
    ("fp16", "half_activation_absmax", 1.9e4),
    ("fp16", "skipped_share", 0.2),
    ("bf16", "half_zero_gradient_share", 0.6),
]


def half(*ladders, precision="fp16", **metrics):
    return facts(*ladders, setup={"precision": precision}, controls=seen(**metrics))


@pytest.mark.parametrize(("precision", "name", "value", "says"), LOST)
def test_a_lost_number_and_a_cure_are_precision(precision, name, value, says):
    answer = half_precision.precision(half(WIDER, precision=precision, **{name: value}))
    assert answer.yes
    assert says in answer.detail
    assert "bf16 cures at the same learning rate" in answer.detail


@pytest.mark.parametrize(("precision", "name", "value"), KEPT)
def test_a_cure_without_a_lost_number_is_none(precision, name, value):
    answer = half_precision.precision(half(WIDER, precision=precision, **{name: value}))
    assert answer.text == "no"
    assert "no overflow or lost update was seen" in answer.detail


@pytest.mark.parametrize(
    ("text", "given", "says"),
    [
        ("no", facts(WIDER), "the run is in fp32"),
        ("no", facts(WIDER, setup={"precision": "fp64"}), "the run is in fp64"),
        (
            "no",
            half(FAILED["precision"], skipped_share=0.9),
            "no dose cures robustly: bf16 diverged, fp32 diverged",
        ),
        ("not known", half(cut_short("precision"), skipped_share=0.9), "the budget ran out"),
        ("no", half(cut_short("precision")), "the budget ran out"),
        ("not tried", half(skipped_share=0.9), "not tried"),
        (
            "not tried",
            half(ladder("precision", "ii", ("bf16", "fp32")), skipped_share=0.9),
            "incon",
        ),
        ("no", half(), "not tried"),
    ],
)
def test_without_a_cure_precision_is_open_only_where_a_number_was_lost(text, given, says):
    answer = half_precision.precision(given)
    assert answer.text == text
    assert says in answer.detail


def test_a_number_lost_in_any_unchanged_replay_counts():
    controls = (control(), control(0, metrics={"half_activation_nonfinite": 1}))
    assert half_precision.lost_numbers(facts(controls=controls))
    assert not half_precision.lost_numbers(facts(controls=()))
