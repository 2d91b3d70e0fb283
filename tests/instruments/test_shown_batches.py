"""Of a stream a few rows of each batch are kept: the first, and one that is out of proportion."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from stabexp.instruments import Watched, build
from stabexp.instruments.shown_batches import FewRows, telling_rows

X = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))


def spoiled(row, value):
    x = X.clone()
    x[row] = value
    return x


@pytest.mark.parametrize(
    ("batch", "rows"),
    [
        pytest.param((X, X[:, 0]), (0, 1, 2), id="ordinary: the first"),
        pytest.param((spoiled(11, 1e4), X[:, 0]), (11, 0, 1), id="far too large"),
        pytest.param({"x": spoiled(5, float("nan"))}, (5, 0, 1), id="NaN"),
        pytest.param([X[:2], X[:2]], (0, 1), id="two rows"),
        pytest.param({"x": X, "y": spoiled(7, 1e9)[:, 0]}, (7, 0, 1), id="in the target"),
        pytest.param(torch.tensor(3.0), (), id="no rows at all"),
        pytest.param(["a", "b"], (), id="no tensor"),
    ],
)
def test_the_rows_that_tell_most_are_chosen(batch, rows):
    assert telling_rows(batch) == rows


def test_rows_keep_the_form_of_their_batch():
    batch = {"x": X, "names": [f"n{i}" for i in range(16)], "pair": (X[:, 0], X[:, 1])}
    few = FewRows(batch, (11, 0))
    assert list(few) == ["row 11", "row 0"]
    assert torch.equal(few["row 11"]["x"], X[11])
    assert few["row 11"]["names"] == "n11"
    assert torch.equal(few["row 0"]["pair"][1], X[0, 1])
    assert few.batch["x"].shape == (2, 4)


def watched(dataset_size=None, **options):
    net = nn.Linear(4, 1)
    instrument = build({"shown_batches": options})["shown_batches"]
    optimizer = torch.optim.SGD(net.parameters())
    instrument.attach(Watched(model=net, optimizer=optimizer, dataset_size=dataset_size))
    return instrument


@pytest.mark.parametrize(("latest", "kept"), [(False, range(13)), (True, [*range(8), 39])])
def test_memory_is_bounded_and_the_last_batches_can_matter_more(latest, kept):
    instrument = watched(latest=latest, limit=12 * 3 * 4 * 4)
    for number in range(40):
        instrument.batch_begins(number, (number,), X)
    found = list(instrument.kept)
    assert found[:8] == list(kept)[:8]
    assert len(found) <= 13
    assert (39 in found) == latest


def test_nothing_is_kept_of_a_dataset_that_can_be_read_again():
    instrument = watched(dataset_size=100)
    instrument.batch_begins(0, (3,), X)
    assert not instrument.kept


def test_what_is_kept_does_not_change_with_the_batch():
    instrument = watched()
    batch = X.clone()
    instrument.batch_begins(0, (0,), batch)
    batch.zero_()
    assert torch.equal(instrument.kept[0]["row 0"], X[0])
