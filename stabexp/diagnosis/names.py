"""What the curves of a log are called: one table for each quantity, and no guessing beyond it.

Names are compared in lower case with everything but letters and digits read as "_", so that
"Loss/train", "loss train" and "loss-train" are one. A name that speaks of validation is never the
training loss, and a loss that is in no table ("actor_loss") is shown to the user, who chooses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

Quantity = Literal["loss", "grad_norm", "lr", "loss_scale", "update_ratio", "param_norm"]
"""What a step record can hold, by the name of its field."""

LOSS = (
    "loss",  # plain loops, Hugging Face Trainer, Keras, TRL
    "train_loss_step",  # Lightning, logged with on_step and on_epoch
    "train_loss",  # Lightning, most plain loops
    "training_loss_step",
    "training_loss",
    "loss_step",
    "loss_train",  # TensorBoard: Loss/train
    "loss_training",
    "train_batch_loss",
    "batch_loss",
    "train_total_loss",
    "total_loss",
    "loss_total",
    "train_loss_total",
    "lm_loss",  # Megatron
    "train_lm_loss",
    "lm_loss_training_lm_loss",  # Megatron in TensorBoard: lm-loss-training/lm loss
    "train_samples_train_loss",  # DeepSpeed: Train/Samples/train_loss
    "running_loss",
    "avg_loss",
    "train_loss_epoch",
    "training_loss_epoch",
    "loss_epoch",
    "epoch_loss",
)
GRAD_NORM = (
    "grad_norm",  # Hugging Face Trainer, most plain loops
    "train_grad_norm",
    "grad_norm_step",
    "train_grad_norm_step",
    "gradient_norm",
    "train_gradient_norm",
    "total_grad_norm",
    "train_total_grad_norm",
    "grad_norm_total",
    "gradient_norm_total",
    "total_norm",
    "global_grad_norm",
    "grad_global_norm",
    "gradients_global_norm",
    "gradients_norm",
    "grads_norm",
    "grad_l2_norm",
    "grad_2_0_norm_total",  # lightning.pytorch.utilities.grad_norm
    "grad_norm_grad_norm",  # Megatron in TensorBoard: grad-norm/grad-norm
    "gradnorm",
    "gnorm",  # fairseq
    "train_gnorm",
)
LR = (
    "lr",
    "learning_rate",  # Hugging Face Trainer
    "train_lr",
    "train_learning_rate",
    "learningrate",
    "train_samples_lr",  # DeepSpeed
    "learning_rate_learning_rate",  # Megatron in TensorBoard
)
LR_OF_A_GROUP = re.compile(
    r"(?:train_|optim_|optimizer_)?(?:lr|learning_rate)_(?!.*(?:decay|mom)).+"
)
"""lr-Adam, lr-AdamW/pg1 (Lightning's LearningRateMonitor), lr/group_0."""
LOSS_SCALE = (
    "loss_scale",
    "train_loss_scale",
    "grad_scale",
    "grad_scaler_scale",
    "scaler_scale",
    "amp_scale",
    "amp_loss_scale",
    "scale",
    "train_samples_loss_scale",
    "loss_scale_loss_scale",
)
TABLES: Mapping[Quantity, Sequence[str]] = {
    "loss": LOSS,
    "grad_norm": GRAD_NORM,
    "lr": LR,
    "loss_scale": LOSS_SCALE,
    "update_ratio": ("update_ratio",),  # stabexp
    "param_norm": ("param_norm",),  # stabexp
}

STEP = (
    "global_step",
    "trainer_global_step",
    "_step",  # Weights & Biases
    "step",
    "steps",
    "num_updates",
    "update",
    "iteration",
    "iter",
    "it",
    "train_step",
)
"""Columns that count the updates, in order of preference."""
EPOCH = ("epoch", "trainer_epoch")

HELD_OUT = frozenset(
    {"val", "valid", "validation", "eval", "evaluation", "test", "testing", "dev"}
    | {"holdout", "heldout"}
)
CLIPPED = frozenset({"clipped", "clip"})


def normal(name: str) -> str:
    """Return a name as the tables spell it.

    A Weights & Biases export puts the run's name in front: "sunny-tree-3 - train/loss".
    """
    kept = re.sub(r"[^a-z0-9]+", "_", name.rpartition(" - ")[2].lower()).strip("_")
    return f"_{kept}" if name.strip() == "_step" else kept


def rank(quantity: Quantity, name: str) -> int | None:
    """Return how well a name fits a quantity, 0 best; None when it does not."""
    spelled = normal(name)
    words = set(spelled.split("_"))
    if words & HELD_OUT or (quantity == "grad_norm" and words & CLIPPED):
        return None
    if name.endswith(("__MIN", "__MAX")):  # a band that Weights & Biases exports beside a curve
        return None
    table = TABLES[quantity]
    if spelled in table:
        return table.index(spelled)
    if quantity == "lr" and LR_OF_A_GROUP.fullmatch(spelled):
        return len(table)
    return None


def quantity_of(name: str) -> Quantity | None:
    """Return what a curve of this name shows, None when no table has it."""
    return next((quantity for quantity in TABLES if rank(quantity, name) is not None), None)


def speaks_of_loss(name: str) -> bool:
    """Return whether a user may mean this one with `--loss`."""
    return "loss" in normal(name)


def pick(names: Sequence[str], table: Sequence[str]) -> str | None:
    """Return the first of the table's names that is there, as the log spells it."""
    spelled = {normal(name): name for name in reversed(names)}
    return next((spelled[name] for name in table if name in spelled), None)
