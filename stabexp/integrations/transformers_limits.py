"""What a Trainer can be asked to do that no replay could repeat bit for bit, each with a remedy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from transformers import Trainer

from stabexp.errors import NotReplayableError

UPDATES_IN_BACKWARD = ("lomo", "layerwise")
"""In the names of optimizers that change weights while gradients are still being computed."""


def check_replayable(trainer: Trainer, *, resume_from_checkpoint: Any, trial: Any) -> None:
    """Refuse what would make a verdict worthless.

    Raises:
        NotReplayableError: Naming the argument, its value, the reason and what to do.
    """
    for problem in _problems(trainer, resume_from_checkpoint, trial):
        raise NotReplayableError(problem)


def _problems(trainer: Any, resumed: Any, trial: Any) -> Iterator[str]:
    args = trainer.args
    if resumed not in (None, False):
        yield (
            f"Trainer.train: resume_from_checkpoint={resumed!r}: Trainer's own resuming is not "
            "exact in the middle of an epoch, and a replay would start there again. Let stabexp "
            "go on with the run (`stabexp run --resume RUN_ID`), or load the weights before "
            "the Trainer is made"
        )
    if trial is not None:
        yield (
            "Trainer.hyperparameter_search: one run is one training; search without the "
            "StabexpCallback, then run the training that diverged"
        )
    if args.auto_find_batch_size:
        yield (
            "TrainingArguments.auto_find_batch_size: starts the training again with smaller "
            "batches when memory runs out; set it to False and per_device_train_batch_size to "
            "what it found"
        )
    if trainer.is_deepspeed_enabled:
        yield (
            "TrainingArguments.deepspeed: DeepSpeed makes the updates in an engine of its own, "
            "out of sight; replay the training in one process without it"
        )
    if trainer.is_fsdp_enabled:
        yield (
            "TrainingArguments.fsdp: the parameters are spread over processes, of which this one "
            "sees a part; replay the training in one process without it"
        )
    if args.world_size > 1:
        yield (
            f"Trainer: {args.world_size} processes train together, of which this one sees its own "
            "batches only; start one process"
        )
    if args.n_gpu > 1:
        yield (
            f"Trainer: takes {args.n_gpu} GPUs (DataParallel), whose sums come in no fixed order; "
            "set CUDA_VISIBLE_DEVICES to one of them"
        )
    optimizer = str(getattr(args.optim, "value", args.optim))
    if any(part in optimizer for part in UPDATES_IN_BACKWARD):
        yield (
            f"TrainingArguments.optim: {optimizer} changes the weights during the backward pass, "
            "where an update cannot be watched; choose another optimizer, such as adamw_torch"
        )
    if hasattr(trainer, "_buffered_inputs"):
        yield (
            f"{type(trainer).__name__}: its samples are written by the model while it trains and "
            "kept for several updates, which a checkpoint does not hold; record the samples, and "
            "train on them with a Trainer over that dataset"
        )
