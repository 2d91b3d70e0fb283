"""Why each finding matters, and which further findings follow from it. Pure: text only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stabexp.preflight.result import Finding

WHY: dict[str, str] = {
    # the data
    "input_not_finite": "one NaN in a batch makes the loss, and after one update every weight, NaN",
    "raw_bytes": "weights are initialised, and were trained, for inputs of about unit size; bytes "
    "are a "
    "hundred times that, and so are the first gradients",
    "input_range": "weights are initialised for inputs of about unit size; larger ones give larger "
    "gradients, and the rate that fits is smaller by their square",
    "columns_of_different_scale": "no single rate fits: the wide column diverges before the "
    "others learn",
    "stuck_column": "it carries no information, and drifts in the weights like a second bias",
    "channel_order": "a convolution would slide over channels as if they were places",
    "channels_interleaved": "the network is shown stripes of mixed colours; it trains, badly",
    "label_out_of_range": "on a GPU it is an illegal memory access some steps later, or silent "
    "nonsense",
    "token_out_of_range": "on a GPU it is an illegal memory access; tokenizer and model do not "
    "belong "
    "together",
    "one_class_per_batch": "the model forgets each class while it sees the next: the loss swings",
    "no_target_in_batch": "the mean over nothing is NaN, and so is every weight after the update",
    "duplicate_samples": "they count several times, and leak into the held-out data",
    "empty_samples": "an attention row over nothing is NaN, and a blank sample has a label at "
    "random",
    "cut_samples": "what the samples say at their end, answers included, is never learned",
    "batch_shrinks": "the real batch is smaller than the rate was chosen for, and differs from "
    "step to "
    "step",
    "repeated_batches": "the model learns the few samples that come again and again by heart",
    # the model before the first update
    "initial_loss": "a classifier that knows nothing scores ln C; far above it, the first "
    "hundreds of "
    "updates only undo the initialisation, often with exploding gradients",
    "signal_grows": "gradients grow with the same factor per layer on the way back",
    "signal_fades": "gradients fade with the same factor per layer on the way back: the first "
    "layers do "
    "not learn",
    "dead_units": "they get no gradient and stay dead; the network is narrower than it looks",
    "saturated_units": "where the slope is nearly zero, so is the gradient",
    "unlike_siblings": "one layer of another size dominates, or does nothing, from the first "
    "update on",
    "new_rows_too_wide": "new tokens drown what the model has learned about the others",
    "new_head_too_wide": "its first gradients are large and run through all that was trained "
    "before",
    "join_broadcasts": "samples are mixed with each other, and the loss still falls",
    "parameter_not_initialised": "the memory held whatever was there before: no two runs are alike",
    "positions_collide": "different positions become the same one",
    "integer_wraps": "a byte minus 128 is not negative but large",
    "batch_statistics_of_one": "the deviation of a single value is 0 or NaN",
    "router_collapse": "all experts but one get no gradient",
    # the update
    "loss_without_graph": "nothing is trained",
    "no_update": "nothing is trained",
    "double_step": "the effective rate is twice the one that was set, and momentum counts twice",
    "update_before_backward": "every update is one batch late, and the first one is at random or "
    "empty",
    "no_gradient_at_update": "nothing is trained, apart from weight decay",
    "clip_has_no_effect": "bursts of the gradient reach the weights unlimited",
    "clipped_before_unscale": "the limit is divided by the loss scale, so the updates nearly "
    "vanish",
    "gradient_accumulates_over_steps": "the gradient grows from step to step until the run "
    "diverges",
    "gradient_scale": "the rate that was set is not the one that is used",
    "micro_batches_weighted_wrongly": "targets of short micro-batches count more than others",
    "loss_detached": "a part of the model is not trained by the loss that is watched",
    "loss_shapes_broadcast": "the model learns the mean of the targets, and the loss still falls",
    "double_softmax": "the loss cannot fall below a floor and its gradients are small",
    "evaluation_mode": "without dropout and batch statistics another model is trained than was "
    "meant",
    "recomputation_differs": "the gradient belongs to another forward pass than the loss",
    # what is trained
    "parameter_never_moves": "it stays as it was initialised, whatever the loss says",
    "almost_nothing_trains": "what is left cannot learn the task",
    "frozen_statistics_move": "the frozen part does not stay what it was trained to be",
    "encoder_not_frozen": "the denoiser chases a space that moves, and decoded pictures fall apart",
    "base_not_frozen": "this is full fine-tuning with a LoRA rate, 100 times too high for it",
    "adapter_cannot_learn": "the product of two zeros has no gradient in either",
    "adapter_factor": "the factor multiplies the adapter's rate; the documents ask for 1, 2 is "
    "common",
    "adapter_scale": "the factor multiplies the adapter's rate by the rank",
    "adapter_dropout": "little of the small adapter's signal is left",
    "state_changed_between_steps": "the optimizer does not go on where it was",
    "buffer_not_finite": "what is not a number spreads with the next use",
    # rate and schedule
    "rate_outside_range": "it is what most unstable fine-tunings are put down to",
    "rate_too_high": "what was initialised or learned before is overwritten within a few updates",
    "rate_stays_zero": "nothing is trained",
    "warmup_too_long": "the rate that was chosen is hardly, or never, used",
    "schedule_ends_early": "the rest of the run trains nothing, or ends in an error",
    "schedule_on_wrong_clock": "the rate is another one than was meant for nearly all of the run",
    "schedule_before_update": "the first rate is skipped, and each one is used an update early",
    # half precision
    "little_headroom": "activations grow in training; beyond 65,504 float16 is infinite, then NaN",
    "loss_scale_missing": "small gradients are lost without a message, and layers stop learning",
    "adam_eps_vanishes": "a weight with a small gradient is divided by zero",
    "statistics_in_half": "running statistics in half precision overflow or stand still",
    "number_not_finite": "one NaN makes the loss, and after one update every weight, NaN",
    # several processes
    "ranks_out_of_step": "every rank trains a model of its own; all but one are thrown away",
    # everything else
    "training_raises": "the training would end here",
}
"""Finding → why it matters."""

_SIZES = frozenset(
    {"initial_loss", "signal_grows", "signal_fades", "dead_units", "saturated_units"}
    | {"rate_too_high", "little_headroom", "number_not_finite", "input_range"}
)
_NUMBERS = _SIZES | {"training_raises", "buffer_not_finite", "no_gradient_at_update"}

FOLLOWS: dict[str, frozenset[str]] = {
    "input_not_finite": _NUMBERS,
    "parameter_not_initialised": _NUMBERS | {"unlike_siblings", "new_rows_too_wide"},
    "no_target_in_batch": _NUMBERS,
    "raw_bytes": _SIZES | {"columns_of_different_scale"},
    "columns_of_different_scale": _SIZES,
    "input_range": _SIZES - {"input_range"},
    "channel_order": frozenset({"training_raises"}),
    "label_out_of_range": _NUMBERS | {"one_class_per_batch"},
    "token_out_of_range": _NUMBERS,
    "integer_wraps": _SIZES,
    "empty_samples": frozenset({"number_not_finite", "duplicate_samples"}),
    "repeated_batches": frozenset({"duplicate_samples"}),
    "unlike_siblings": _SIZES,
    "new_head_too_wide": _SIZES | {"unlike_siblings"},
    "new_rows_too_wide": _SIZES,
    "signal_grows": _SIZES - {"signal_grows", "input_range"},
    "signal_fades": frozenset({"dead_units", "rate_too_high"}),
    "dead_units": frozenset({"rate_too_high"}),
    "initial_loss": frozenset({"rate_too_high", "saturated_units", "number_not_finite"}),
    "adapter_factor": _SIZES | {"adapter_scale"},
    "adapter_scale": _SIZES,
    "adapter_cannot_learn": frozenset({"parameter_never_moves", "no_gradient_at_update"}),
    "base_not_frozen": frozenset({"rate_too_high", "rate_outside_range"}),
    "gradient_accumulates_over_steps": frozenset(
        {"rate_too_high", "gradient_scale", "double_step"}
    ),
    "no_gradient_at_update": frozenset({"parameter_never_moves", "clip_has_no_effect"}),
    "update_before_backward": frozenset(
        {"parameter_never_moves", "clip_has_no_effect", "gradient_accumulates_over_steps"}
    ),
    "double_step": frozenset({"gradient_scale", "rate_too_high"}),
    "gradient_scale": frozenset({"rate_too_high", "clipped_before_unscale"}),
    "loss_detached": frozenset({"parameter_never_moves"}),
    "rate_stays_zero": frozenset({"parameter_never_moves", "schedule_on_wrong_clock"}),
    "rate_outside_range": frozenset({"rate_too_high", "number_not_finite"}),
    "rate_too_high": frozenset({"number_not_finite", "little_headroom"}),
    "adam_eps_vanishes": frozenset(
        {"number_not_finite", "parameter_never_moves", "little_headroom"}
    ),
    "little_headroom": frozenset({"number_not_finite", "training_raises"}),
    "batch_statistics_of_one": frozenset({"number_not_finite", "training_raises"}),
    "number_not_finite": frozenset({"training_raises", "buffer_not_finite"}),
    "loss_without_graph": frozenset({"training_raises"}),
}
"""Finding → findings that it brings about, and that are not listed beside it."""


def without_consequences(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return the findings that no other one explains, each with what follows from it.

    Certain ones come first, else the order is kept.
    """
    names = [finding.name for finding in findings]
    kept = [
        finding
        for index, finding in enumerate(findings)
        if not any(
            finding.name in FOLLOWS.get(other, ())
            and not (other in FOLLOWS.get(finding.name, ()) and place > index)
            for place, other in enumerate(names)
            if other != finding.name
        )
    ]
    left_out = [name for name in names if name not in {finding.name for finding in kept}]
    told = [
        replace(
            finding,
            leads_to=tuple(n for n in left_out if n in FOLLOWS.get(finding.name, ())),
        )
        for finding in kept
    ]
    return tuple(sorted(told, key=lambda finding: not finding.certain))
