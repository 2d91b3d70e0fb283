"""What of a Lightning training cannot be replayed exactly is refused before its first step."""

from __future__ import annotations

from typing import Any

from torch.optim import LBFGS
from torch.utils.data import DataLoader, IterableDataset

from stabexp.errors import NotReplayableError
from stabexp.integrations.lightning_package import pl


def check_trainer(trainer: pl.Trainer) -> None:
    """Refuse a trainer whose course depends on what is not in our states.

    Raises:
        NotReplayableError: With the place and the remedy.
    """
    strategy = trainer.strategy
    if trainer.world_size > 1 or not isinstance(strategy, pl.strategies.SingleDeviceStrategy):
        raise NotReplayableError(
            f"Trainer(strategy): {type(strategy).__name__} on {trainer.world_size} devices shares "
            "one training among processes; replay on one: Trainer(devices=1, strategy='auto')"
        )
    if trainer.reload_dataloaders_every_n_epochs:  # type: ignore[attr-defined]
        raise NotReplayableError(
            "Trainer(reload_dataloaders_every_n_epochs): a loader that is made anew has no "
            "position to go back to; leave it at 0, and let the sampler change with the epoch"
        )
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, (pl.callbacks.BatchSizeFinder, pl.callbacks.LearningRateFinder)):
            raise NotReplayableError(
                f"callbacks: {type(callback).__name__} trains for itself first; run it once, write "
                "down what it found, and leave it out"
            )
        if isinstance(callback, pl.callbacks.StochasticWeightAveraging):
            raise NotReplayableError(
                "callbacks: StochasticWeightAveraging replaces the schedule in the middle of the "
                "training; use the WeightAveraging callback"
            )
    module = trainer.lightning_module
    if pl.utilities.signature_utils.is_param_in_hook_signature(
        module.training_step, "dataloader_iter", explicit=True
    ):
        raise NotReplayableError(
            f"{type(module).__name__}.training_step(dataloader_iter) takes its batches itself, so "
            "it is not known which are used; take (batch, batch_idx)"
        )


def check_start(trainer: pl.Trainer) -> None:
    """Refuse a start in the middle, and updates that are more than one step of an optimizer.

    Call it when the optimizers are there, and what was to be loaded is loaded.

    Raises:
        NotReplayableError: With the place and the remedy.
    """
    if trainer.ckpt_path is not None:
        raise NotReplayableError(
            f"Trainer.fit(ckpt_path={str(trainer.ckpt_path)!r}): the training would begin in the "
            "middle of another one; load the weights with load_from_checkpoint and leave ckpt_path "
            "out (an interrupted run goes on with `stabexp run --resume`)"
        )
    name = type(trainer.lightning_module).__name__
    for optimizer in trainer.optimizers:
        if isinstance(optimizer, LBFGS):
            raise NotReplayableError(
                f"{name}.configure_optimizers: LBFGS evaluates the loss several times inside one "
                "update, so a step cannot be watched or changed; use SGD or Adam"
            )
    plugin = trainer.precision_plugin
    kinds = pl.plugins.precision
    known = (kinds.Precision.optimizer_step, kinds.MixedPrecision.optimizer_step)
    if type(plugin).optimizer_step not in known:
        raise NotReplayableError(
            f"Trainer(precision): {type(plugin).__name__} steps the optimizer in a way of its own; "
            "use precision '32-true', '16-mixed', 'bf16-mixed', or another on one device"
        )


def the_loader(loaders: list[Any]) -> DataLoader[Any]:
    """Return the one training loader, a DataLoader over a map-style dataset.

    Raises:
        NotReplayableError: If there are several, or one that has no position.
    """
    if len(loaders) != 1:
        raise NotReplayableError(
            f"Trainer.fit: {len(loaders)} training loaders, each with its own position; make one "
            "loader over one dataset, such as torch.utils.data.StackDataset or ConcatDataset"
        )
    loader = loaders[0]
    if not isinstance(loader, DataLoader):
        raise NotReplayableError(
            f"Trainer.fit: the training loader is a {type(loader).__name__}, so its position "
            "cannot be put back; use a torch.utils.data.DataLoader"
        )
    if isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
        raise NotReplayableError(
            f"Trainer.fit: the loader over {type(loader.dataset).__name__} makes no batches by "
            "index, so its position cannot be put back; use a map-style dataset with a batch size"
        )
    return loader
