"""Which set-ups there are: one planted mistake each, with the finding it deserves, or none.

The first lists are those that the rules were made on. The further ones were written when the rules
were finished, and scored once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_HERE = "experiments.preflight"


@dataclass(frozen=True, kw_only=True)
class Setup:
    """A training and what is wrong with it."""

    title: str
    function: str
    """The training function, or an experiment file."""
    finding: str = ""
    """Name of the finding that it deserves; empty for a clean one."""
    args: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


def _planted(module: str, function: str = "train", **mistakes: str) -> list[Setup]:
    name = f"{_HERE}.{module}:{function}"
    return [
        Setup(
            title=f"{module}: {mistake.replace('_', ' ')}",
            function=name,
            finding=finding,
            args={"mistake": mistake.replace("_", " ")},
        )
        for mistake, finding in mistakes.items()
    ]


def _with(setups: list[Setup], **args: Any) -> list[Setup]:
    return [
        Setup(
            title=each.title,
            function=each.function,
            finding=each.finding,
            args={**each.args, **args},
            settings=each.settings,
        )
        for each in setups
    ]


PLANTED: tuple[Setup, ...] = (
    *_planted(
        "digits",
        bytes="raw_bytes",
        sorted="one_class_per_batch",
        labels_from_one="label_out_of_range",
        nan_pixels="input_not_finite",
        duplicates="duplicate_samples",
        blank_images="empty_samples",
        samples_lost="batch_shrinks",
        wild_head="initial_loss",
        dead_rectifiers="dead_units",
        frozen="almost_nothing_trains",
        frozen_norm_in_training_mode="frozen_statistics_move",
        evaluation_mode="evaluation_mode",
        head_left_out="parameter_never_moves",
        head_replaced="parameter_never_moves",
        softmax_twice="double_softmax",
        detached="loss_without_graph",
        not_divided="gradient_scale",
        not_cleared="gradient_accumulates_over_steps",
        cleared_before_the_update="no_gradient_at_update",
        update_before_backward="update_before_backward",
        step_twice="double_step",
        clip_before_backward="clip_has_no_effect",
        clip_after_the_update="clip_has_no_effect",
        one_cycle_too_short="schedule_ends_early",
        steps_of_epochs="schedule_on_wrong_clock",
        rate_zero="rate_stays_zero",
        schedule_first="schedule_before_update",
        ranks="ranks_out_of_step",
    ),
    *_planted("digits", **{"warm-up_too_long": "warmup_too_long"}),
    *_with(_planted("digits", **{"Adam_at_0.3": "rate_too_high"}), adam=True),
    *_with(
        _planted(
            "digits",
            no_scaler="loss_scale_missing",
            overflow="little_headroom",
            clip_before_unscale="clipped_before_unscale",
        ),
        half="fp16",
    ),
    *_planted("pictures", channels_last="channel_order", channels_reshaped="channels_interleaved"),
    *_planted(
        "pictures",
        "train_deep",
        grows="signal_grows",
        fades="signal_fades",
        saturated="saturated_units",
    ),
    *_planted(
        "tables",
        one_column_in_another_unit="columns_of_different_scale",
        stuck_sensor="stuck_column",
        column_against_row="loss_shapes_broadcast",
    ),
    *_planted(
        "text",
        no_row_for_padding="token_out_of_range",
        padding_only="empty_samples",
        cut="cut_samples",
        everything_ignored="no_target_in_batch",
        one_block_wide="unlike_siblings",
    ),
    *_planted("tuning", rate_of_LoRA="rate_outside_range"),
    *_with(
        _planted(
            "tuning",
            base_trained_too="base_not_frozen",
            alpha_times_sixteen="adapter_factor",
            both_ends_zero="adapter_cannot_learn",
            adapter_not_a_number="parameter_not_initialised",
            **{"dropout_of_0.6": "adapter_dropout"},
        ),
        lora=True,
    ),
    *_planted("tuning", "classify", wide_head="new_head_too_wide"),
    *_planted("tuning", "denoise", encoder_trained_too="encoder_not_frozen"),
)
"""One mistake each; the rules were made on these."""


def _clean(title: str, function: str, **more: Any) -> Setup:
    settings = more.pop("settings", {})
    return Setup(title=title, function=function, args=more, settings=settings)


CLEAN: tuple[Setup, ...] = (
    _clean("classifier, SGD, accumulation", f"{_HERE}.digits:train"),
    _clean("classifier, AdamW", f"{_HERE}.digits:train", adam=True),
    _clean("classifier, float16 autocast", f"{_HERE}.digits:train", half="fp16"),
    _clean("classifier, bfloat16 autocast", f"{_HERE}.digits:train", half="bf16"),
    _clean("coloured pictures, convolutions", f"{_HERE}.pictures:train"),
    _clean("deep perceptron", f"{_HERE}.pictures:train_deep"),
    _clean("table, regression", f"{_HERE}.tables:train"),
    _clean("table, yes or no", f"{_HERE}.tables:train", binary=True),
    _clean("padded text, transformer", f"{_HERE}.text:train"),
    _clean("tuning GPT-2 as a whole", f"{_HERE}.tuning:train"),
    _clean("tuning GPT-2 with LoRA", f"{_HERE}.tuning:train", lora=True),
    _clean("a new head on GPT-2", f"{_HERE}.tuning:classify"),
    _clean("denoiser, frozen encoder", f"{_HERE}.tuning:denoise"),
    _clean("healthy_cnn.yaml", "experiments/healthy_cnn.yaml"),
    _clean("plain loop", "experiments.trainers.plain_loop:train"),
    _clean("Accelerate", "experiments.trainers.accelerate_loop:train"),
    _clean("Hugging Face Trainer", "experiments.trainers.hugging_face:trainer"),
    _clean("Hugging Face Trainer, PEFT", "experiments.trainers.hugging_face:adapters"),
    _clean("TRL SFTTrainer", "experiments.trainers.hugging_face:sft"),
    _clean("Lightning, automatic", "experiments.trainers.lightning_auto:train"),
    _clean("Lightning, manual", "experiments.trainers.lightning_manual:train"),
)
"""Nothing is wrong with these; the rules were made on them too."""

FURTHER_PLANTED: tuple[Setup, ...] = (
    *_planted("further", "gan", sigmoid_before_logits="double_softmax"),
    *_planted(
        "further",
        "translate",
        cosine_of_passes="schedule_on_wrong_clock",
        exponential_in_half="little_headroom",
    ),
    *_planted("further", "tagger", tags_of_another_count="label_out_of_range"),
    *_planted("further", "resnet", all_in_training_mode="frozen_statistics_move"),
    *_planted(
        "further",
        "trainer",
        ids_of_another_tokenizer="token_out_of_range",
        masked_rows="empty_samples",
    ),
    *_planted("further", "lightning", body_detached="parameter_never_moves"),
    *_with(_planted("tables", labels_of_minus_one="label_out_of_range"), binary=True),
    *_planted("text", wide_new_rows="new_rows_too_wide"),
)
"""Written when the rules were finished."""

FURTHER_CLEAN: tuple[Setup, ...] = (
    _clean("GAN, two optimizers", f"{_HERE}.further:gan"),
    _clean("images to words, attention", f"{_HERE}.further:translate"),
    _clean("tagger, bidirectional LSTM", f"{_HERE}.further:tagger"),
    _clean("residual network, frozen stages, bfloat16", f"{_HERE}.further:resnet"),
    _clean("Hugging Face Trainer, attention mask", f"{_HERE}.further:trainer"),
    _clean("Lightning, Adam", f"{_HERE}.further:lightning"),
)
"""Written when the rules were finished."""
