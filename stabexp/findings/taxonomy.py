"""Which causes a symptom can have, and what to check first: two tables, and nothing else.

The order is that of experience, before anything is known of the run. About 70 % of stability
problems are said to come from the learning-rate policy, so it leads where it can be the cause at
all; what the run itself shows comes before either order.
Source rows B1, B21, C1, C2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stabexp.findings.finding import Symptom

RATE_POLICY = frozenset({"learning_rate", "schedule", "warmup", "learning_rate_low"})
"""Causes that are the learning-rate policy's: rate, schedule, warmup."""
RATE_POLICY_SHARE = 0.7
"""Their share of stability problems: the estimate of practitioners, not a measurement of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One check of the priority matrix; `command` is filled in with the run's own names."""

    what: str
    command: str
    after_a_crash: str = ""
    """The command for a run that diverged, where it is another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One symptom's row."""

    title: str
    causes: tuple[str, ...]
    """Keys of `CAUSES`, most common first."""
    priority: tuple[str, ...]
    """Keys of `CHECKS`, to be done in this order."""


CAUSES: Mapping[str, str] = {
    "learning_rate": "the learning rate is too high",
    "learning_rate_low": "the learning rate is too low to get anywhere",
    "warmup": "the full rate comes before the optimizer and the weights are ready for it",
    "schedule": "the schedule raises the rate, or does not lower it in time",
    "vanishing": "gradients vanish on their way back, so that lower layers do not learn",
    "labels": "labels or inputs are wrong, so that there is nothing to learn",
    "batch_size": "batches are so small that their noise decides",
    "uneven_data": "data is uneven: some batches are unlike the others",
    "data": "single samples are bad",
    "clip_norm": "rare large gradients are not clipped, or so late that it does nothing",
    "regularisation": "too little regularisation",
    "too_little_data": "too little data for what is learned",
    "capacity": "the model is too large for its data",
    "loss_function": "a division by zero or a logarithm of zero in the loss or the model",
    "underflow": "a gradient too small for float16 became zero, or the loss scale is wrong",
    "precision": "a number too large for its half-precision format",
    "accumulation": "gradients add up that should not: not set to zero, or not divided",
    "optimizer_state": "the optimizer's state was lost or damaged",
    "initialisation": "weights start too wide or too narrow",
    "weight_decay": "weight decay eats the weights",
    "architecture": "a layer is cut off: dead units, a saturated or missing normalisation",
    "implementation": "the training step breaks a rule of its own",
}

CHECKS: Mapping[str, Step] = {
    "rate range": Step(
        what="does another rate learn? a tenth of it, and nothing else",
        command="stabexp replay {run} --from 0 --set learning_rate=0.1",
    ),
    "rate": Step(
        what="which dose of the rate cures, and is it the cause?",
        command="stabexp bisect {run} --variables learning_rate,warmup",
    ),
    "data loading": Step(
        what="do data, labels and training step keep their rules?",
        command="stabexp check {run}",
        after_a_crash="stabexp bisect {run}",
    ),
    "architecture": Step(
        what="which layer stands out, in its weights and its gradients?",
        command="stabexp health {run}",
    ),
    "batch size": Step(
        what="do four times as many samples per update calm it?",
        command="stabexp replay {run} --from 0 --set batch_size=4",
    ),
    "schedule": Step(
        what="does it stay calm with a ramp of 100 steps?",
        command="stabexp replay {run} --from 0 --set warmup=100",
    ),
    "clip": Step(
        what="does clipping at {clip} calm it?",
        command="stabexp replay {run} --from 0 --set clip_norm={clip}",
    ),
    "regularisation": Step(
        what="does ten times the weight decay close the gap? Where there is none: train once more "
        "with it and nothing else changed, and compare",
        command="stabexp replay {run} --from 0 --set weight_decay=10",
    ),
    "augmentation": Step(
        what="train once more with augmented data and nothing else changed; then look where the "
        "two part",
        command="stabexp compare {run} THE_NEW_RUN",
    ),
    "capacity": Step(
        what="train once more with half the width and nothing else changed; then look where the "
        "two part",
        command="stabexp compare {run} THE_NEW_RUN",
    ),
    "numeric stability": Step(
        what="which operation made the first number that is not finite, and where?",
        command="stabexp check {run}",
        after_a_crash="stabexp locate {run}",
    ),
    "loss": Step(
        what="does the run train through with only that operation kept safe?",
        command="stabexp check {run}",
        after_a_crash="stabexp bisect {run}",
    ),
    "precision": Step(
        what="does it train through in float32?",
        command="stabexp replay {run} --set precision=fp32",
    ),
    "cause": Step(
        what="which single change cures, and does it do so for its own sake?",
        command="stabexp check {run}",
        after_a_crash="stabexp bisect {run}",
    ),
    "layers": Step(
        what="see the gradient of every layer over depth and steps",
        command="stabexp figures {run} --out figures",
    ),
}

TAXONOMY: Mapping[Symptom, Row] = {
    "not_decreasing": Row(
        title="the loss does not decrease",
        causes=("learning_rate", "learning_rate_low", "vanishing", "labels", "implementation"),
        priority=("rate range", "data loading", "architecture"),
    ),
    "oscillating": Row(
        title="the loss oscillates",
        causes=("batch_size", "schedule", "uneven_data", "clip_norm", "learning_rate"),
        priority=("batch size", "schedule", "clip"),
    ),
    "overfitting": Row(
        title="the model learns its data by heart",
        causes=("regularisation", "too_little_data", "capacity"),
        priority=("regularisation", "augmentation", "capacity"),
    ),
    "non_finite": Row(
        title="a number is NaN or infinite",
        causes=("learning_rate", "loss_function", "precision", "underflow", "data"),
        priority=("numeric stability", "loss", "precision"),
    ),
    "explosion": Row(
        title="explosion: the run was fine and is lost within a few steps",
        causes=(
            "learning_rate",
            "data",
            "loss_function",
            "precision",
            "clip_norm",
            "optimizer_state",
        ),
        priority=("numeric stability", "cause", "clip"),
    ),
    "divergence": Row(
        title="divergence: the loss climbs away from what had been learned",
        causes=(
            "learning_rate",
            "warmup",
            "schedule",
            "accumulation",
            "initialisation",
            "weight_decay",
            "optimizer_state",
        ),
        priority=("rate", "data loading", "cause"),
    ),
    "exploding_gradient": Row(
        title="gradients explode",
        causes=("learning_rate", "clip_norm", "warmup", "initialisation", "data"),
        priority=("clip", "rate range", "layers"),
    ),
    "vanishing_gradient": Row(
        title="gradients vanish",
        causes=("vanishing", "initialisation", "underflow", "learning_rate"),
        priority=("architecture", "layers", "precision"),
    ),
    "degenerate_layer": Row(
        title="a layer does not learn any more",
        causes=("architecture", "initialisation", "weight_decay", "learning_rate"),
        priority=("architecture", "layers", "rate range"),
    ),
}
