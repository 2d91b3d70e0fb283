"""How far a module is from the ends of float16 is what its numbers say."""

from __future__ import annotations

import pytest

import stabexp
from stabexp.preflight import preflight_text

TRAINING = """\
import torch
from torch import nn


def train(run, size=3.0, gain=1.0, tiny=1.0, half=False):
    model = nn.Sequential(nn.Linear(4, 2, bias=False), nn.Identity(), nn.Linear(2, 1, bias=False))
    nn.init.constant_(model[0].weight, gain)
    nn.init.constant_(model[2].weight, 1e-3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    scaler = torch.amp.GradScaler("cpu", enabled=half)
    rows = torch.full((64, 4), size) * torch.tensor([[1.0], [-1.0]]).repeat(32, 1)
    data = torch.utils.data.TensorDataset(rows)
    for (x,) in run.steps(data, model=model, optimizer=optimizer, scaler=scaler, epochs=20):
        with torch.autocast("cpu", dtype=torch.float16, enabled=half):
            loss = model(x).float().square().mean() * tiny
        run.log(loss)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""


@pytest.fixture(autouse=True)
def _training(tmp_path):
    (tmp_path / "training.py").write_text(TRAINING, "utf-8")


def examined(**arguments: object) -> stabexp.Preflight:
    return stabexp.check_setup("training.py:train", updates=3, args=arguments)


def test_the_largest_activation_of_every_module_is_told_with_what_is_left():
    first, same, last = examined(size=3.0).modules
    assert [each.module for each in (first, same, last)] == ["0", "1", "2"]
    assert first.largest == same.largest == pytest.approx(12.0, rel=1e-5)
    assert last.largest == pytest.approx(12.0 * 2e-3, rel=1e-4)
    assert first.headroom == pytest.approx(65_504 / 12, rel=1e-5)
    assert (first.dtype, first.vanishing, same.vanishing) == ("float32", 0.0, None)


def test_gradients_that_float16_cannot_hold_are_counted():
    first, _, last = examined(size=3.0, tiny=1e-8).modules
    assert (first.vanishing, last.vanishing) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("gain", "says"), [(1600.0, "it may grow 3.4 times"), (1e4, "beyond 65,504")]
)
def test_an_activation_near_the_end_of_float16_is_told(gain, says):
    found = examined(gain=gain, half=True)
    told = next(each for each in found.findings if each.name == "little_headroom")
    assert says in told.what
    assert "0, at training.py:15" in told.where
    assert "headroom" in preflight_text(found)
