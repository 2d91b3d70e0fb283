"""What differs between two saved states is named and sized, tensor by tensor."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from stabexp.comparison.states import (
    common_checkpoints,
    first_differing_checkpoint,
    state_differences,
)
from stabexp.state import CheckpointStore, capture, seed_everything


def snapshot(change=lambda model, optimizer: None):
    """Train two steps, change something, and return the state."""
    seed_everything(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(8, 3)).pow(2).mean().backward()
        optimizer.step()
    with torch.no_grad():
        change(model, optimizer)
    return capture({"model": model, "optimizer": optimizer}, extra={"step": 2})


def weight(model, optimizer):
    model[2].weight[0, 1] += 0.5


def moment(model, optimizer):
    optimizer.state[model[0].bias]["exp_avg"][:2] = math.nan


def statistics(model, optimizer):
    model[1].running_mean.mul_(2)


def rate(model, optimizer):
    optimizer.param_groups[0]["lr"] = 0.5


def draw(model, optimizer):
    torch.rand(1)


def several(model, optimizer):
    moment(model, optimizer)
    statistics(model, optimizer)
    weight(model, optimizer)


@pytest.mark.parametrize(
    ("change", "name", "kind", "elements", "of"),
    [
        (weight, "model.2.weight", "parameter", 1, 4),
        (statistics, "model.1.running_mean", "buffer", 4, 4),
        (moment, "optimizer.0.bias.exp_avg", "optimizer", 2, 4),
        (rate, "optimizer.groups.0.lr", "optimizer", 0, 0),
    ],
)
def test_one_change_is_one_difference(change, name, kind, elements, of):
    (found,) = state_differences(snapshot(), snapshot(change))
    assert (found.name, found.kind, found.elements, found.of) == (name, kind, elements, of)


def test_the_size_is_that_of_the_change():
    (found,) = state_differences(snapshot(), snapshot(weight))
    assert found.largest == pytest.approx(0.5, rel=1e-6)
    before = snapshot().objects["model"]["value"]["state"]["2.weight"].norm()
    assert found.relative == pytest.approx(0.5 / float(before), rel=1e-6)
    (rated,) = state_differences(snapshot(), snapshot(rate))
    assert rated.detail == "0.01 and 0.5"


def test_parameters_come_before_buffers_and_optimizer_state():
    found = state_differences(snapshot(), snapshot(several))
    assert [difference.kind for difference in found] == ["parameter", "buffer", "optimizer"]


def test_a_drawn_number_shows_in_the_random_streams():
    found = state_differences(snapshot(), snapshot(draw))
    assert found
    assert all(difference.name.startswith("streams.") for difference in found)


def test_equal_states_differ_in_nothing():
    assert state_differences(snapshot(), snapshot()) == ()


def test_the_first_common_checkpoint_with_unequal_states_is_taken(tmp_path):
    changes = {"a": {}, "b": {8: weight, 12: several}}
    for name, changed in changes.items():
        with CheckpointStore(tmp_path / name, keep=9) as store:
            for step in (0, 4, 8, 12) if name == "a" else (0, 4, 6, 8, 12):
                store.save(step, snapshot(changed.get(step, draw)), finite=True)
    pairs = ((0, True), (4, True), (8, False), (12, False))
    assert common_checkpoints(tmp_path / "a", tmp_path / "b") == pairs
    found = first_differing_checkpoint(tmp_path / "a", tmp_path / "b")
    assert found is not None
    assert (found.step, found.differences[0].name) == (8, "model.2.weight")
    (tmp_path / "a" / "step-00000008.pt").write_bytes(b"torn")
    found = first_differing_checkpoint(tmp_path / "a", tmp_path / "b")
    assert found is not None
    assert found.step == 12


def test_without_checkpoints_nothing_is_said(tmp_path):
    assert common_checkpoints(tmp_path / "a", tmp_path / "b") == ()
    assert first_differing_checkpoint(tmp_path / "a", tmp_path / "b") is None
