"""Single samples are described in plain figures, whatever shape a dataset gives them."""

from __future__ import annotations

import json
from collections import namedtuple

import pytest
import torch

from stabexp.tasks.digits import digits
from stabexp.tasks.sample_figures import figures

Pair = namedtuple("Pair", "image label")

IMAGE = torch.tensor([[0.0, 1.0], [2.0, float("nan")]])


@pytest.mark.parametrize(
    ("sample", "names", "label"),
    [
        pytest.param(IMAGE, ["value"], None, id="a tensor"),
        pytest.param((IMAGE, torch.tensor(3)), ["0", "1"], 3, id="a tuple"),
        pytest.param([IMAGE, 3], ["0", "1"], 3, id="a list with a number"),
        pytest.param({"x": IMAGE, "label": 3}, ["x", "label"], 3, id="a dict"),
        pytest.param({"x": {"a": IMAGE}, "id": 7, "y": 3}, ["x.a", "id", "y"], 3, id="nested"),
        pytest.param(Pair(IMAGE, torch.tensor([3])), ["image", "label"], 3, id="a named tuple"),
        pytest.param((IMAGE, 3.5), ["0", "1"], None, id="a real target"),
        pytest.param((IMAGE, IMAGE.numpy()), ["0", "1"], None, id="an array"),
        pytest.param((IMAGE, "cat", None), ["0", "1"], None, id="a text and nothing"),
        pytest.param(([5, 6, 7], 1), ["0", "1"], 1, id="a list of tokens"),
    ],
)
def test_any_sample_is_described(sample, names, label):
    (found,) = figures([sample], [0])
    assert [field["name"] for field in found["fields"]] == names
    assert found["label"] == label
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_figures_are_over_the_finite_values():
    (found,) = figures([(IMAGE, 3)], [0])
    image, label = found["fields"]
    assert image == {
        "name": "0",
        "shape": [2, 2],
        "whole": False,
        "size": 4,
        "distinct": 4,
        "nonfinite": 1,
        "low": 0.0,
        "high": 2.0,
        "mean": 1.0,
        "std": pytest.approx((2 / 3) ** 0.5),
    }
    assert (label["whole"], label["low"], label["high"], label["std"]) == (True, 3.0, 3.0, 0.0)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(torch.zeros(0), id="empty"),
        pytest.param(torch.full((3,), float("inf")), id="nothing finite"),
    ],
)
def test_without_finite_values_there_are_no_figures(value):
    (found,) = figures([value], [0])
    assert found["fields"][0]["low"] is None
    assert found["fields"][0]["mean"] is None


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float16, torch.bfloat16])
def test_any_number_format_is_read(dtype):
    (found,) = figures([torch.tensor([0, 1, 1]).to(dtype)], [0])
    assert (found["fields"][0]["low"], found["fields"][0]["high"]) == (0.0, 1.0)


def test_twins_have_the_same_input_and_maybe_another_label():
    data = [(torch.tensor([1.0, 2.0]), 3), (torch.tensor([1.0, 2.0]), 5), (torch.ones(2), 3)]
    found = figures(data, [0, 2], pool=[0, 1, 2])
    assert (found[0]["twins"], found[0]["twin_labels"]) == ([1], [5])
    assert found[1]["twins"] == []
    assert (found[0]["label_count"], found[0]["pool_labels"]) == (1, 2)


def test_neighbours_are_those_in_the_same_direction_however_bright():
    images, labels = digits()
    data = [(image, label) for image, label in zip(images[:300], labels[:300], strict=True)]
    dark = figures(data, [17], pool=range(300))[0]
    data[17] = (1000 * images[17], labels[17])
    bright = figures(data, [17], pool=range(300))[0]
    assert bright["nearest_labels"] == dark["nearest_labels"]
    assert bright["nearest_labels"].count(int(labels[17])) >= 7


def test_a_sample_without_a_direction_has_no_neighbours():
    found = figures([torch.zeros(3), torch.ones(3)], [0], pool=[1])
    assert found[0]["nearest_labels"] == []
