"""Which figure of the step log is which metric."""

from __future__ import annotations

from collections.abc import Mapping

LAYER_FIGURES: Mapping[str, str] = {
    "grad_norm": "stabexp_layer_gradient_norm",
    "weight_norm": "stabexp_layer_weight_norm",
    "update_ratio": "stabexp_layer_update_ratio",
    "activation_zeros": "stabexp_layer_activation_sparsity_ratio",
    "activation_rms": "stabexp_layer_activation_rms",
    "grad_zeros": "stabexp_layer_gradient_sparsity_ratio",
}
"""Kind of a layer's figure → metric."""

LARGEST: Mapping[str, str] = {
    "grad_norm": "stabexp_layers_gradient_norm_max",
    "update_ratio": "stabexp_layers_update_ratio_max",
    "activation_zeros": "stabexp_layers_activation_sparsity_ratio_max",
}
"""Kind → metric for the largest over all layers."""

SMALLEST: Mapping[str, str] = {"update_ratio": "stabexp_layers_update_ratio_min"}
"""Kind → metric for the smallest over all layers that is not zero."""

MODEL_FIGURES: Mapping[str, str] = {
    "loss/slope": "stabexp_loss_slope",
    "loss/second_derivative": "stabexp_loss_second_derivative",
}
"""Name of a figure of the whole model → metric; the others are measurements by name."""

MEASUREMENTS_SHOWN = 100
"""Names of `stabexp_measurement` per run, in alphabetical order."""
