"""A healthy training is the same with and without us, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning as L
import pytest
import torch
from integrations.lightning import worlds
from integrations.lightning.worlds import THIRD_PARTY, loader, trainer
from lightning.pytorch.callbacks import Callback
from recording import record

from stabexp.bisection.replay import first_mismatch
from stabexp.integrations.lightning import StabexpCallback
from stabexp.state.hashing import parameter_digest
from stabexp.state.random_streams import seed_everything

pytestmark = THIRD_PARTY

OPTIMIZERS = (
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.Adamax,
    torch.optim.Adagrad,
    torch.optim.Adadelta,
    torch.optim.RMSprop,
    torch.optim.Rprop,
    torch.optim.ASGD,
    torch.optim.Adafactor,
)


class Losses(Callback):
    """Keeps what Lightning differentiates, and the weights after every batch."""

    def __init__(self) -> None:
        self.seen: list[float] = []
        self.weights: list[int] = []

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        self.seen.append(float(loss.detach()))

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.weights.append(int(parameter_digest(list(pl_module.parameters()))))


def both(
    module: Callable[[], L.LightningModule], directory: Any, **options: Any
) -> tuple[Losses, Losses]:
    """Train without and with us."""
    plain, watched = Losses(), Losses()
    torch.use_deterministic_algorithms(True)
    seed_everything(0)
    trainer(plain, **options).fit(module(), loader())
    record(
        lambda run: trainer(watched, StabexpCallback(run), **options).fit(module(), loader()),
        directory,
    )
    return plain, watched


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda kind: kind.__name__)
def test_the_closure_may_run_before_the_step_of(optimizer, tmp_path):
    plain, watched = both(
        lambda: worlds.Net(optimizer=optimizer), tmp_path, max_epochs=1, gradient_clip_val=0.5
    )
    assert len(plain.weights) == 13
    assert watched.seen == plain.seen
    assert watched.weights == plain.weights


@pytest.mark.parametrize(
    ("module", "options"),
    [
        pytest.param(worlds.Net, {"accumulate_grad_batches": 2}, id="accumulated"),
        pytest.param(worlds.Net, {"precision": "bf16-mixed"}, id="bf16-mixed"),
        pytest.param(worlds.Validated, {"val_check_interval": 5}, id="validated"),
        pytest.param(worlds.OneCycle, {}, id="one cycle"),
        pytest.param(worlds.Manual, {}, id="manual"),
        pytest.param(worlds.Gan, {}, id="two optimizers"),
    ],
)
def test_losses_and_weights_are_the_same(module, options, tmp_path):
    plain, watched = both(module, tmp_path, **options)
    assert len(plain.weights) == 39
    assert watched.seen == plain.seen
    assert watched.weights == plain.weights


def test_a_loader_may_be_used_in_every_call(tmp_path):
    shared = loader(generator=torch.Generator().manual_seed(4))
    sampler, batches = shared.batch_sampler, len(shared)

    def train(run: Any) -> None:
        shared.generator.manual_seed(4)
        trainer(StabexpCallback(run), max_epochs=2).fit(worlds.Net(), shared)
        assert shared.batch_sampler is sampler

    recorded = record(train, tmp_path)
    for step in (0, batches):
        replayed = recorded.replay(step)
        assert first_mismatch(recorded.records, replayed) == (None, "")


def test_the_trainer_and_the_module_are_left_as_they_were(tmp_path):
    seen: list[Any] = []

    def train(run: Any) -> None:
        fit, module = trainer(StabexpCallback(run), max_epochs=1), worlds.Net()
        fit.fit(module, loader())
        fit.validate(worlds.Validated())  # the callback is there still, and keeps out of it
        seen.extend([fit, module])

    record(train, tmp_path)
    fit, module = seen
    loop = fit.fit_loop
    for owner in (fit.strategy, fit.precision_plugin, loop, loop.epoch_loop.automatic_optimization):
        assert not [
            name
            for name, value in vars(owner).items()
            if callable(value) and hasattr(type(owner), name)
        ]
    assert not module._forward_hooks
    (optimizer,) = fit.optimizers
    assert not optimizer._optimizer_step_pre_hooks
