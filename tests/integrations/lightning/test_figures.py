"""What a step showed is recorded as it was, whatever Lightning makes of it or keeps to itself."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from integrations.lightning import worlds
from integrations.lightning.worlds import THIRD_PARTY, loader, trainer
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.plugins import MixedPrecision
from recording import record

from stabexp.integrations.lightning import StabexpCallback

pytestmark = THIRD_PARTY


class Gradients(Callback):
    """Measures, with plain torch, the gradients before Lightning clips them."""

    def __init__(self) -> None:
        self.norms: list[float] = []

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        norms = [p.grad.norm() for p in pl_module.parameters() if p.grad is not None]
        self.norms.append(float(torch.stack(norms).norm()))


def test_the_norm_is_that_before_clipping(tmp_path):
    gradients = Gradients()
    recorded = record(
        lambda run: trainer(gradients, StabexpCallback(run), gradient_clip_val=0.5).fit(
            worlds.Net(), loader()
        ),
        tmp_path,
    )
    norms = [one.grad_norm for one in recorded.records]
    assert norms == pytest.approx(gradients.norms, rel=1e-6)
    assert max(norms) > 0.5
    for one in recorded.records:
        wanted = min(1.0, 0.5 / (one.grad_norm + 1e-6))
        assert one.clip_coefficient == pytest.approx(wanted, rel=1e-5)


def test_the_loss_is_neither_divided_nor_scaled(tmp_path):
    losses: list[float] = []

    class Net(worlds.Net):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = self.loss(batch)
            losses.append(float(loss.detach()))
            return {"loss": loss}

    plugin = MixedPrecision("16-mixed", device="cpu")
    recorded = record(
        lambda run: trainer(
            StabexpCallback(run), accumulate_grad_batches=2, max_epochs=1, plugins=plugin
        ).fit(Net(), loader()),
        tmp_path,
    )
    pairs = [losses[at : at + 2] for at in range(0, 13, 2)]
    wanted = [sum(pair) / len(pair) for pair in pairs]
    assert [one.loss for one in recorded.records] == pytest.approx(wanted, rel=1e-3)
    assert [one.batch_size for one in recorded.records] == [16] * 6 + [4]
    assert recorded.records[0].loss_scale == 32768.0  # 65536 was too much: halved, and left out
    assert recorded.records[0].skipped


@pytest.mark.parametrize("module", [worlds.Net, worlds.Manual])
def test_a_loss_of_nan_is_recorded_and_ends_the_training(module, tmp_path):
    data = worlds.table()
    data.tensors[1][50] = math.nan
    seen: list[Any] = []

    def train(run: Any) -> None:
        # Lightning would go on to the end of the pass, and these minima keep it from stopping.
        fit = trainer(StabexpCallback(run), min_epochs=3, min_steps=30)
        fit.fit(module(), loader(data))
        seen.append(fit)

    recorded = record(train, tmp_path)
    assert recorded.run.divergence is not None
    assert recorded.run.divergence.detector == "non_finite"
    assert math.isnan(recorded.records[-1].loss)
    assert len(recorded.records) < 18
    assert seen[0].state.finished


def test_every_manual_backward_is_a_loss(tmp_path):
    logged: list[float] = []

    class Watch(Callback):
        def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
            logged.append(float(loss.detach()))

    recorded = record(
        lambda run: trainer(Watch(), StabexpCallback(run), max_epochs=1).fit(
            worlds.Gan(), loader()
        ),
        tmp_path,
    )
    means = [sum(logged[at : at + 2]) / 2 for at in range(0, 26, 2)]
    assert [one.loss for one in recorded.records] == pytest.approx(means)
    assert [one.lr for one in recorded.records] == [1e-3] * 13
    assert [one.metrics["loss_1"] for one in recorded.records] == logged[0::2]
    assert [one.metrics["loss_2"] for one in recorded.records] == logged[1::2]


@pytest.mark.filterwarnings("ignore:.*training_step. returned .None.*")  # on purpose
def test_a_batch_that_a_module_leaves_out_is_no_step(tmp_path):
    class Picky(worlds.Net):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return None if batch_idx % 3 == 1 else self.loss(batch)

    recorded = record(
        lambda run: trainer(StabexpCallback(run), max_epochs=2).fit(Picky(), loader()), tmp_path
    )
    assert len(recorded.records) == 2 * 9
    replayed = recorded.replay(4)
    assert [one.digest for one in replayed] == [one.digest for one in recorded.records[4:]]


@pytest.mark.filterwarnings("ignore:train_dataloader yielded None.*")  # on purpose
def test_the_samples_of_a_batch_that_is_none_belong_to_no_step(tmp_path):
    data = loader(collate_fn=worlds.unless_broken)
    recorded = record(
        lambda run: trainer(StabexpCallback(run), max_epochs=1).fit(worlds.Net(), data), tmp_path
    )
    seen = [sample for one in recorded.records for sample in one.sample_ids]
    assert 50 not in seen
    assert len(seen) == len(set(seen)) in (92, 96)
