"""What is known about every case: when it fails, its causes, and what a verdict has to name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Known:
    """The truth about one case, seed by seed where seeds differ."""

    causes: frozenset[str]
    """Verdicts that are right; the experiment's `expect` is one of them."""
    detected: tuple[int | None, int | None, int | None]
    """Step at which a detector fires on seeds 0, 1, 2; None when none does."""
    reasons: frozenset[str] = frozenset()
    """Where a number that is not finite is born: acceptable reasons. Empty when none is."""
    operation: str = ""
    """Part of the name of the torch operation that is at fault."""
    rule: str = ""
    """The invariant of a training step that is broken."""
    parameter: str = ""
    """Parameter or buffer to name."""
    samples: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None = None
    """Ids of the samples to name on seeds 0, 1, 2."""
    slow: bool = False

    @property
    def silent(self) -> bool:
        """Whether no detector fires on any of the three seeds."""
        return self.detected == (None, None, None)


SILENT = (None, None, None)
_CODE = frozenset({"implementation"})
_LOSS = frozenset({"implementation", "loss_function"})

CASES: dict[str, Known] = {
    "adam_eps_fp16": Known(
        causes=frozenset({"precision", "implementation"}),
        detected=(0, 0, 0),
        reasons=frozenset({"update_division", "zero_over_zero", "division_by_zero"}),
    ),
    "attn_all_masked": Known(
        causes=frozenset({"implementation", "data"}),
        detected=(140, 151, 162),
        reasons=frozenset({"masked_row"}),
        operation="softmax",
        samples=((2243,), (2419,), (2595,)),
    ),
    "bn_half_running_stats": Known(
        causes=frozenset({"implementation", "precision"}),
        detected=SILENT,
        rule="buffer_not_finite",
        parameter="norm.running_var",
    ),
    "ckpt_dropout_rng": Known(
        causes=_CODE, detected=SILENT, rule="recomputation_differs", slow=True
    ),
    "clip_inf_poison": Known(
        causes=frozenset({"implementation", "data"}),
        detected=(120, 129, 138),
        reasons=frozenset({"zero_times_inf", "fp16_overflow", "overflow"}),
        samples=((3844,), (4132,), (4420,)),
    ),
    "compile_budget_dropout": Known(
        causes=_CODE, detected=(56, 65, 198), rule="compiled_code_differs", slow=True
    ),
    "ctc_too_long": Known(
        causes=frozenset({"data", "loss_function"}),
        detected=(90, 127, 114),
        reasons=frozenset({"loss_infinite"}),
        operation="ctc_loss",
        samples=((1440,), (2032,), (1824,)),
    ),
    "double_softmax": Known(causes=_LOSS, detected=SILENT, rule="double_softmax"),
    "double_unscale": Known(causes=_CODE, detected=SILENT, rule="gradient_scale"),
    "embed_init_tied": Known(
        causes=frozenset({"initialisation"}), detected=SILENT, parameter="embedding.weight"
    ),
    "ga_token_norm": Known(
        causes=_CODE, detected=SILENT, rule="micro_batches_weighted_wrongly", slow=True
    ),
    "ignored_only_batch": Known(
        causes=frozenset({"implementation", "loss_function", "data"}),
        detected=(16, 42, 13),
        reasons=frozenset({"zero_over_zero", "empty_mean", "division_by_zero"}),
        operation="div",
        samples=((32, 33), (84, 85), (26, 27)),
    ),
    "lora_alpha_not_over_r": Known(causes=_CODE, detected=(3, 3, 3), rule="adapter_scale"),
    "lr_2": Known(causes=frozenset({"learning_rate"}), detected=(5, 5, 5)),
    "moe_collapse": Known(causes=_CODE, detected=SILENT, rule="router_collapse", slow=True),
    "mse_broadcast": Known(causes=_LOSS, detected=SILENT, rule="loss_shapes_broadcast"),
    "no_positive_batch": Known(
        causes=frozenset({"implementation", "loss_function", "data"}),
        detected=(4, 4, 1),
        reasons=frozenset({"division_by_zero"}),
        operation="div",
        samples=((8, 9), (8, 9), (2, 3)),
    ),
    "no_zero_grad": Known(
        causes=_CODE, detected=(157, 180, 171), rule="gradient_accumulates_over_steps"
    ),
    "optimizer_noncontig": Known(
        causes=_CODE, detected=SILENT, rule="parameter_never_moves", parameter="encoder.weight"
    ),
    "positions_bf16": Known(
        causes=frozenset({"implementation", "precision"}),
        detected=SILENT,
        rule="positions_collide",
        slow=True,
    ),
    "ppo_last_batch_one": Known(
        causes=frozenset({"implementation", "data"}),
        detected=(2, 2, 2),
        reasons=frozenset({"std_of_one"}),
        operation="std",
        rule="batch_statistics_of_one",
        samples=((2,), (2,), (2,)),
    ),
    "resume_no_moments": Known(
        causes=frozenset({"optimizer_state", "implementation"}),
        detected=(303, 303, 303),
        rule="state_changed_between_steps",
        slow=True,
    ),
    "resume_tail_only": Known(
        causes=frozenset({"implementation", "data", "overfitting"}),
        detected=(1465, 1311, 1328),
        rule="repeated_batches",
        slow=True,
    ),
    "rnn_no_clip": Known(causes=frozenset({"clip_norm"}), detected=(5, 5, 5), slow=True),
    "sched_per_step": Known(
        causes=frozenset({"schedule", "implementation"}),
        detected=SILENT,
        rule="schedule_on_wrong_clock",
    ),
    "sqrt_zero_pair": Known(
        causes=frozenset({"implementation", "loss_function", "data"}),
        detected=(140, 151, 162),
        reasons=frozenset({"sqrt_at_zero", "norm_at_zero"}),
        operation="sqrt",
        samples=((4480,), (4832,), (5184,)),
    ),
    "uint8_wrap": Known(
        causes=frozenset({"implementation", "data"}), detected=SILENT, rule="integer_wraps"
    ),
    "uninit_bias": Known(
        causes=frozenset({"initialisation", "implementation"}),
        detected=(0, 0, 0),
        reasons=frozenset({"nonfinite_parameter"}),
        rule="parameter_not_initialised",
        parameter="router.bias",
    ),
    "unnormalised_input": Known(causes=frozenset({"data"}), detected=(1, 1, 1), rule="input_range"),
    "wgan_gp_zero": Known(
        causes=_LOSS,
        detected=(5, 1, 3),
        reasons=frozenset({"sqrt_at_zero", "norm_at_zero"}),
        operation="sqrt",
        slow=True,
    ),
    "where_nan": Known(
        causes=_LOSS,
        detected=(30, 42, 25),
        reasons=frozenset({"where_branch", "log_of_negative", "log_of_zero"}),
        operation="log",
    ),
}

VARIANTS: dict[str, Known] = {
    "absent_class": Known(
        causes=_LOSS | {"data"},
        detected=(39, 39, 141),
        reasons=frozenset({"division_by_zero", "zero_over_zero"}),
        operation="div",
    ),
    "empty_gain": Known(
        causes=frozenset({"initialisation", "implementation"}),
        detected=(0, 0, 0),
        reasons=frozenset({"nonfinite_parameter"}),
        rule="parameter_not_initialised",
        parameter="1.gain",
    ),
    "empty_selection": Known(
        causes=_LOSS | {"data"},
        detected=(1, 14, 9),
        reasons=frozenset({"zero_over_zero", "division_by_zero"}),
        operation="div",
    ),
    "group_of_one": Known(
        causes=_LOSS | {"data"},
        detected=(6, 2, 10),
        reasons=frozenset({"std_of_one"}),
        operation="std",
        rule="batch_statistics_of_one",
    ),
    "head_only_cleared": Known(
        causes=_CODE, detected=(19, 21, 28), rule="gradient_accumulates_over_steps"
    ),
    "lora_layers": Known(causes=_CODE, detected=(6, 5, 6), rule="adapter_scale"),
    "no_allowed_label": Known(
        causes=_LOSS | {"data"},
        detected=(75, 87, 99),
        reasons=frozenset({"log_of_zero", "loss_infinite"}),
        operation="log",
        samples=((2409,), (2793,), (3177,)),
    ),
    "no_candidate": Known(
        causes=_LOSS | {"data"},
        detected=(60, 67, 74),
        reasons=frozenset({"masked_row"}),
        operation="log_softmax",
        samples=((965,), (1077,), (1189,)),
    ),
    "rmse_masked": Known(
        causes=_LOSS | {"data"},
        detected=(70, 83, 96),
        reasons=frozenset({"pow", "sqrt_at_zero"}),
        operation="pow",
        samples=((280, 281, 282, 283), (332, 333, 334, 335), (384, 385, 386, 387)),
    ),
    "rmsprop_half": Known(
        causes=frozenset({"precision", "implementation"}),
        detected=(0, 0, 0),
        reasons=frozenset({"update_division", "zero_over_zero", "division_by_zero"}),
    ),
    "root_where": Known(
        causes=_LOSS,
        detected=(25, 24, 16),
        reasons=frozenset({"where_branch", "sqrt_of_negative"}),
        operation="sqrt",
    ),
    "second_moment_lost": Known(
        causes=frozenset({"optimizer_state", "implementation"}),
        detected=(163, 163, 163),
        rule="state_changed_between_steps",
    ),
    "stuck_sensor": Known(
        causes=_LOSS | {"data"},
        detected=(80, 89, 98),
        reasons=frozenset({"sqrt_at_zero"}),
        operation="sqrt",
        samples=((1287,), (1431,), (1575,)),
    ),
    "timestamps": Known(causes=frozenset({"data"}), detected=(1, 1, 1), rule="input_range"),
}
"""The same for the cases in variants/."""
