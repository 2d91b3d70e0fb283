"""What cannot be replayed exactly is refused at once, with the place and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from integrations.lightning import worlds
from integrations.lightning.worlds import THIRD_PARTY, loader, trainer
from lightning.pytorch.callbacks import LearningRateFinder, StochasticWeightAveraging
from lightning.pytorch.plugins import MixedPrecision, Precision
from recording import record
from torch.utils.data import DataLoader, IterableDataset

from stabexp.errors import NotReplayableError
from stabexp.integrations.lightning import StabexpCallback

pytestmark = THIRD_PARTY


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(worlds.table())


class TakesTheIterator(worlds.Net):
    def training_step(self, dataloader_iter: Any) -> Any:  # type: ignore[override]
        return self.loss(next(dataloader_iter)[0])


class OwnWay(Precision):
    def optimizer_step(self, optimizer: Any, model: Any, closure: Any, **kwargs: Any) -> Any:
        return optimizer.step(closure=closure)


def fit(module: Any = worlds.Net, data: Any = loader, *callbacks: Any, **options: Any) -> Any:
    return lambda run: trainer(StabexpCallback(run), *callbacks, **options).fit(module(), data())


def from_checkpoint(run: Any) -> None:
    plain = trainer(max_epochs=1)
    plain.fit(worlds.Net(), loader())
    plain.save_checkpoint("other.ckpt")
    trainer(StabexpCallback(run)).fit(worlds.Net(), loader(), ckpt_path="other.ckpt")


def twice(run: Any) -> None:
    for _ in range(2):
        trainer(StabexpCallback(run), max_epochs=1).fit(worlds.Net(), loader())


@pytest.mark.filterwarnings(
    "ignore:.*dataloader_iter.*",  # support is experimental, says Lightning
    "ignore:.*ddp.*",
)
@pytest.mark.parametrize(
    ("train", "words"),
    [
        pytest.param(from_checkpoint, ["ckpt_path='", "load_from_checkpoint"], id="ckpt_path"),
        pytest.param(twice, ["twice"], id="two fits"),
        pytest.param(
            fit(lambda: worlds.Net(optimizer=torch.optim.LBFGS)),
            ["Net.configure_optimizers: LBFGS", "use SGD or Adam"],
            id="LBFGS",
        ),
        pytest.param(
            fit(data=lambda: DataLoader(Stream(), batch_size=8)),
            ["loader over Stream", "map-style"],
            id="a stream",
        ),
        pytest.param(
            fit(data=Stream), ["training loader is a Stream", "DataLoader"], id="no loader at all"
        ),
        pytest.param(
            fit(data=lambda: {"a": loader(), "b": loader()}),
            ["2 training loaders", "StackDataset"],
            id="two loaders",
        ),
        pytest.param(
            fit(TakesTheIterator), ["training_step(dataloader_iter)", "batch_idx"], id="iterator"
        ),
        pytest.param(
            fit(reload_dataloaders_every_n_epochs=1),
            ["reload_dataloaders_every_n_epochs", "leave it at 0"],
            id="reloading",
        ),
        pytest.param(
            fit(worlds.Net, loader, StochasticWeightAveraging(swa_lrs=1e-3)),
            ["StochasticWeightAveraging", "WeightAveraging callback"],
            id="SWA",
        ),
        pytest.param(
            fit(worlds.Net, loader, LearningRateFinder()), ["trains for itself"], id="finder"
        ),
        pytest.param(fit(plugins=OwnWay()), ["OwnWay", "way of its own"], id="precision"),
    ],
)
def test_refuses(train: Callable[[Any], None], words: list[str], tmp_path):
    with pytest.raises(NotReplayableError) as refused:
        record(train, tmp_path)
    for word in words:
        assert word in str(refused.value)


def test_refuses_several_devices(tmp_path):
    with pytest.raises(NotReplayableError, match=r"DDPStrategy on 2 devices.*devices=1"):
        record(_on_two_devices, tmp_path)


def _on_two_devices(run: Any) -> None:
    from stabexp.integrations.lightning_checks import check_trainer

    # Only its configuration: the second process of a real one would have to be refused as well.
    configured = trainer(StabexpCallback(run), strategy="ddp", devices=2)
    check_trainer(configured)


def test_a_refused_training_leaves_the_trainer_as_it_was(tmp_path):
    seen: list[Any] = []

    def train(run: Any) -> None:
        seen.append(trainer(StabexpCallback(run), plugins=MixedPrecision("bf16-mixed", "cpu")))
        seen[0].fit(worlds.Net(), {"a": loader(), "b": loader()})

    with pytest.raises(NotReplayableError):
        record(train, tmp_path)
    assert "_load_combined_loader_states" not in vars(seen[0].fit_loop)
    assert "optimizer_step" not in vars(seen[0].precision_plugin)


def test_an_interrupt_stays_one(tmp_path):
    import signal

    class Interrupted(worlds.Net):
        def on_train_batch_end(self, *_: Any) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(fit(Interrupted), tmp_path)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
