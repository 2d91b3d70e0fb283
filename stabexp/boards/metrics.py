"""Every metric that the endpoint serves, as data: the help text, the labels and the docs page.

Names follow Prometheus' conventions: the application first, base units last, `_total` for what only
counts up, `_ratio` for a share or a quotient. What a run measured without a name here is in
`stabexp_measurement`, by the name it has in the step log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

LAYERS_SHOWN = 64
"""Layers of a run that get series of their own, unless told otherwise."""

STATES = ("running", "finished", "diverged", "failed", "killed")
"""How a run, or its bisect, stands."""

Kind = Literal["gauge", "counter", "info"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric family."""

    name: str
    """Without the suffix of a counter (`_total`) or of an info (`_info`)."""
    kind: Kind
    help: str
    labels: tuple[str, ...] = ("run",)

    @property
    def series(self) -> str:
        """The name as one writes it in a query."""
        return self.name + {"gauge": "", "counter": "_total", "info": "_info"}[self.kind]


@dataclass(frozen=True, slots=True)
class Sample:
    """One number of a metric."""

    metric: str
    """Name of the family."""
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
    """All but `run`."""


_LAYER = ("run", "layer")

_ALL = (
    Metric(
        "stabexp_run",
        "info",
        "What is known of a run when it starts; always 1.",
        ("run", "experiment", "task", "optimizer", "precision", "device", "user", "host"),
    ),
    Metric(
        "stabexp_run_status",
        "gauge",
        "1 for how the run stands, 0 for the other states.",
        ("run", "status"),
    ),
    Metric("stabexp_run_created_timestamp_seconds", "gauge", "When the run was created."),
    Metric("stabexp_latest_step", "gauge", "Index of the latest recorded step, from 0."),
    Metric("stabexp_planned_steps", "gauge", "Steps in all, where the experiment says."),
    Metric(
        "stabexp_latest_step_timestamp_seconds",
        "gauge",
        "When the latest step ended; time() minus this is its age.",
    ),
    Metric(
        "stabexp_steps",
        "counter",
        "Steps made, those made again after an interruption included.",
    ),
    Metric(
        "stabexp_skipped_updates",
        "counter",
        "Updates that the loss scaler, or an intervention, left out.",
    ),
    Metric("stabexp_samples_seen", "gauge", "Samples consumed so far, over all passes."),
    Metric(
        "stabexp_step_duration_seconds",
        "gauge",
        "Median wall time of a step in the run's latest minute, data loading included.",
    ),
    Metric("stabexp_steps_per_second", "gauge", "Steps per second over the run's latest minute."),
    Metric(
        "stabexp_samples_per_second", "gauge", "Samples per second over the run's latest minute."
    ),
    Metric("stabexp_loss", "gauge", "Loss of the latest step, before its update."),
    Metric("stabexp_loss_median", "gauge", "Median loss of the run's latest minute."),
    Metric(
        "stabexp_gradient_norm",
        "gauge",
        "L2 norm over all gradients of the latest step, unscaled, before clipping.",
    ),
    Metric(
        "stabexp_gradient_norm_median",
        "gauge",
        "Median gradient norm of the run's latest minute: what is usual now.",
    ),
    Metric(
        "stabexp_gradient_norm_max",
        "gauge",
        "Largest gradient norm of the run's latest minute: no peak between two scrapes is missed.",
    ),
    Metric("stabexp_learning_rate", "gauge", "Learning rate of the first parameter group."),
    Metric("stabexp_loss_scale", "gauge", "Loss scale of the gradient scaler, where there is one."),
    Metric(
        "stabexp_clip_coefficient_ratio",
        "gauge",
        "What clipping multiplied the latest gradients by; 1 when it did not act.",
    ),
    Metric(
        "stabexp_update_ratio",
        "gauge",
        "Size of the latest update relative to the parameters, |dW| / |W|; about 1e-3 in health.",
    ),
    Metric("stabexp_parameter_norm", "gauge", "L2 norm over all trainable parameters."),
    Metric(
        "stabexp_loss_slope",
        "gauge",
        "Slope of the smoothed loss, per step (monitor loss_curve).",
    ),
    Metric(
        "stabexp_loss_second_derivative",
        "gauge",
        "Second derivative of the smoothed loss, per step squared; above 0 it turns upwards "
        "(monitor loss_curve).",
    ),
    Metric(
        "stabexp_nonfinite_gradients",
        "gauge",
        "Parameters whose latest gradient holds a NaN or an Inf.",
    ),
    Metric(
        "stabexp_nonfinite_parameters",
        "gauge",
        "Parameters that hold a NaN or an Inf after the latest update.",
    ),
    Metric(
        "stabexp_measurement",
        "gauge",
        "Whatever else the run measured for the whole model, by its name in the step log.",
        ("run", "name"),
    ),
    Metric(
        "stabexp_layer_gradient_norm",
        "gauge",
        "L2 norm of a layer's gradient (monitor layers).",
        _LAYER,
    ),
    Metric(
        "stabexp_layer_weight_norm",
        "gauge",
        "L2 norm of a layer's weights (monitor layers).",
        _LAYER,
    ),
    Metric(
        "stabexp_layer_update_ratio",
        "gauge",
        "Size of a layer's update relative to its weights, |dW| / |W| (monitor updates).",
        _LAYER,
    ),
    Metric(
        "stabexp_layer_activation_sparsity_ratio",
        "gauge",
        "Share of zeros in what a module puts out, 0 to 1 (monitor activations).",
        _LAYER,
    ),
    Metric(
        "stabexp_layer_activation_rms",
        "gauge",
        "Root mean square of what a module puts out (monitor activations).",
        _LAYER,
    ),
    Metric(
        "stabexp_layer_gradient_sparsity_ratio",
        "gauge",
        "Share of zeros in a layer's gradient, 0 to 1 (monitor gradients).",
        _LAYER,
    ),
    Metric(
        "stabexp_layers_gradient_norm_max",
        "gauge",
        "Largest gradient norm of any layer, those without series of their own included.",
    ),
    Metric(
        "stabexp_layers_update_ratio_max",
        "gauge",
        "Largest update ratio of any layer, those without series of their own included.",
    ),
    Metric(
        "stabexp_layers_update_ratio_min",
        "gauge",
        "Smallest update ratio of any layer that moves, those without series included.",
    ),
    Metric(
        "stabexp_layers_activation_sparsity_ratio_max",
        "gauge",
        "Largest share of zeros in any module's output, those without series included.",
    ),
    Metric("stabexp_layers", "gauge", "Layers and modules that the run measures."),
    Metric(
        "stabexp_layers_left_out",
        "gauge",
        "Of them, those without series of their own, because of the limit.",
    ),
    Metric(
        "stabexp_alarms",
        "counter",
        "Alarms that monitors raised, by what they are about.",
        ("run", "alarm"),
    ),
    Metric(
        "stabexp_warnings",
        "counter",
        "Warnings of a crash to come, by what was seen (stabiliser early_warning).",
        ("run", "kind"),
    ),
    Metric(
        "stabexp_interventions",
        "counter",
        "What stabilisers and recoveries did, by which of them.",
        ("run", "by"),
    ),
    Metric("stabexp_diverged", "gauge", "1 when a detector found that the run diverged, else 0."),
    Metric(
        "stabexp_divergence",
        "info",
        "What the detector found; always 1.",
        ("run", "detector", "pattern"),
    ),
    Metric("stabexp_divergence_detected_step", "gauge", "Step at which the detector was sure."),
    Metric("stabexp_divergence_onset_step", "gauge", "First step that looked wrong."),
    Metric(
        "stabexp_bisect_status",
        "gauge",
        "1 for how the latest bisect stands, 0 for the other states.",
        ("run", "status"),
    ),
    Metric("stabexp_bisect_trials", "gauge", "Trials that the latest bisect has begun."),
    Metric(
        "stabexp_verdict",
        "info",
        "What the latest verdict says; always 1.",
        ("run", "cause", "family", "fix", "proved"),
    ),
    Metric(
        "stabexp_verdict_confidence_ratio",
        "gauge",
        "How often verdicts with this evidence are right, 0 to 1.",
    ),
    Metric("stabexp_verdict_timestamp_seconds", "gauge", "When the verdict was written."),
    Metric(
        "stabexp_recovery_status",
        "gauge",
        "1 for how the recovery stands (running, recovered, gave_up), 0 for the other states.",
        ("run", "status"),
    ),
    Metric("stabexp_recovery_rollbacks", "gauge", "Times a recovery went back to a checkpoint."),
    Metric(
        "stabexp_run_readable",
        "gauge",
        "0 when a file of the run is damaged; what could be read is served all the same.",
    ),
    Metric(
        "stabexp_run_unread_bytes",
        "gauge",
        "Bytes of the step log that are not counted yet; the counters are missing until it is 0.",
    ),
    Metric("stabexp_exporter", "info", "The version of the endpoint; always 1.", ("version",)),
    Metric("stabexp_exporter_runs", "gauge", "Runs that are served.", ()),
    Metric(
        "stabexp_exporter_runs_left_out",
        "gauge",
        "Runs that would be served but for the limit.",
        (),
    ),
)

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _ALL}
"""Name of the family → metric, in the order they are served."""
