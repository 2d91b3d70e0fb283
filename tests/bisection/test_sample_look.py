"""What sets a culprit apart is said in a sentence that names the sample, the value and the rest."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from stabexp.bisection.sample_look import FieldFigures, SampleFigures, look
from stabexp.records import from_json
from stabexp.tasks.digits import digits
from stabexp.tasks.sample_figures import figures


def field(name="0", **given):
    values = {
        "shape": (8, 8),
        "whole": False,
        "size": 64,
        "distinct": 17,
        "nonfinite": 0,
        "low": 0.0,
        "high": 1.0,
    }
    return FieldFigures(name=name, **{**values, **given})


def tokens(**given):
    values = {"whole": True, "shape": (20,), "size": 20, "distinct": 15, "low": 1.0, "high": 90.0}
    return field("tokens", **{**values, **given})


def sample(number=1234, *fields, **given):
    return SampleFigures(
        id=number, fields=fields or (field(),), label=given.pop("label", 3), **given
    )


IMAGES = [sample(number, label=number % 10) for number in range(16)]
TEXTS = [sample(number, tokens(size=12 + number)) for number in range(16)]


@pytest.mark.parametrize(
    ("culprit", "neighbours", "sentence"),
    [
        pytest.param(
            sample(1234, field(high=23456.0)),
            IMAGES,
            "values up to 23456 where neighbours stay below 1.1",
            id="too large",
        ),
        pytest.param(
            sample(1234, field(low=-23456.5)),
            IMAGES,
            "values up to 2.3e+04 where neighbours stay below 1.1",
            id="too negative",
        ),
        pytest.param(
            sample(1234, field(high=0.004)),
            IMAGES,
            "values only up to 0.004 where neighbours reach 1",
            id="too small",
        ),
        pytest.param(
            sample(1234, field(nonfinite=3)),
            IMAGES,
            "3 of 64 values are NaN or infinite",
            id="some not finite",
        ),
        pytest.param(
            sample(1234, field(nonfinite=64, low=None, high=None, distinct=1)),
            IMAGES,
            "all values are NaN or infinite",
            id="none finite",
        ),
        pytest.param(
            sample(1234, tokens(distinct=1, low=0.0, high=0.0)),
            TEXTS,
            "all padding: every token in tokens is 0",
            id="all padding",
        ),
        pytest.param(
            sample(1234, field(distinct=1, low=0.5, high=0.5)),
            IMAGES,
            "every value is 0.5",
            id="a blank image",
        ),
        pytest.param(
            sample(1234, tokens(size=512)),
            TEXTS,
            "512 values in tokens where neighbours have 12 to 27",
            id="too long",
        ),
        pytest.param(
            sample(1234, tokens(size=0, distinct=0, low=None, high=None)),
            TEXTS,
            "empty in tokens",
            id="empty",
        ),
        pytest.param(
            sample(label=11, pool_labels=11),
            IMAGES,
            "label 11, which none of 1000 others has",
            id="a label that nobody else has",
        ),
        pytest.param(
            sample(label=-1, pool_labels=11),
            IMAGES,
            "label -1 where neighbours' are 0 and more",
            id="a negative label",
        ),
        pytest.param(
            sample(twins=(77,), twin_labels=(3,)),
            IMAGES,
            "exact duplicate of sample 77",
            id="a duplicate",
        ),
        pytest.param(
            sample(twins=(77, 78), twin_labels=(3, 5)),
            IMAGES,
            "the same input as sample 78, but label 3 instead of 5",
            id="a duplicate with another label",
        ),
        pytest.param(
            sample(label=4, nearest_labels=(9, 9, 9, 4, 9, 9, 9, 9, 4, 9)),
            IMAGES,
            "label 4, but 8 of its 10 nearest samples say 9",
            id="a label that all similar ones contradict",
        ),
        pytest.param(
            sample(nearest_labels=(9, 9, 9, 3, 9, 3, 9, 9, 3, 5), label_count=90, pool_labels=10),
            IMAGES,
            "nothing sets it apart from 16 samples that did no harm",
            id="nothing",
        ),
    ],
)
def test_one_sentence_for_what_differs(culprit, neighbours, sentence):
    assert look([culprit], neighbours, pool=1000) == (f"sample 1234: {sentence}",)


def test_several_differences_and_several_samples_are_told_in_order():
    first = sample(5, field(high=900.0, nonfinite=1))
    told = look([first, sample(4)], IMAGES)
    assert [line.split(":")[0] for line in told] == ["sample 5", "sample 5", "sample 4"]


def test_without_neighbours_only_what_is_wrong_by_itself_is_said():
    assert look([sample(1, field(high=1e9))], []) == (
        "sample 1: nothing sets it apart from 0 samples that did no harm",
    )
    assert "NaN" in look([sample(1, field(nonfinite=2))], [])[0]


def test_a_broken_digit_is_described_by_its_brightness_and_its_neighbours():
    images, labels = (column.clone() for column in digits())
    images[1234] *= 1000
    labels[1234] = (labels[1234] + 5) % 10
    data = [(image, label) for image, label in zip(images, labels, strict=True)]
    pool = range(800, 1600)
    read = [from_json(SampleFigures, f) for f in figures(data, [1234, *range(16)], pool=pool)]
    told = look(read[:1], read[1:], pool=len(pool))
    assert told == (
        "sample 1234: values up to 1000 where neighbours stay below 1.1",
        f"sample 1234: label {int(labels[1234])}, but 10 of its 10 nearest samples say "
        f"{(int(labels[1234]) - 5) % 10}",
    )


def test_healthy_digits_are_rarely_told_apart():
    images, labels = digits()
    data = list(zip(images, labels, strict=True))
    chosen = list(range(100, 1700, 16))
    read = [from_json(SampleFigures, f) for f in figures(data, chosen, pool=range(400))]
    told = look(read, read[:16], pool=400)
    assert sum("nothing" not in line for line in told) <= 0.05 * len(chosen), told


def test_sentences_need_no_torch():
    code = "import sys, stabexp.bisection.sample_look; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert torch.is_tensor(digits()[0])
