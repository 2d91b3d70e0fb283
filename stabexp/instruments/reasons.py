"""Why an operation made a number that is not finite, and what to do about it, in words for people.

Pure: decides from what the inputs of the operation were like.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stabexp.instruments.reason_words import EXPONENTIALS

LARGEST = {"float16": 65504.0, "bfloat16": 3.39e38, "float32": 3.4e38, "float64": 1.8e308}
"""Largest finite number by data type."""


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """What the numbers in one input were like; extremes and counts are of the finite ones."""

    dtype: str
    shape: tuple[int, ...] = ()
    floating: bool = True
    smallest: float | None = None
    largest: float | None = None
    zeros: int = 0
    negatives: int = 0
    infinities: int = 0
    nans: int = 0

    @property
    def count(self) -> int:
        """How many numbers there are."""
        total = 1
        for size in self.shape:
            total *= size
        return total

    @property
    def magnitude(self) -> float:
        """The largest absolute value among the finite numbers, 0 if there is none."""
        return max(abs(self.smallest or 0.0), abs(self.largest or 0.0))

    def text(self) -> str:
        """Return "float32[4, 3] from -1.2 to 0, 3 zeros"."""
        parts = [f"{self.dtype}{list(self.shape)}" if self.shape else self.dtype]
        if self.smallest is not None and self.largest is not None:
            same = self.smallest == self.largest
            span = f"{self.smallest:.4g}" if same else f"{self.smallest:.4g} to {self.largest:.4g}"
            parts[0] += f" {span}"
        for count, one, many in (
            (self.zeros, "zero", "zeros"),
            (self.infinities, "inf", "infs"),
            (self.nans, "NaN", "NaNs"),
        ):
            if count:
                parts.append(f"{count} {one if count == 1 else many}")
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """All that is known of an operation that made a non-finite number."""

    operation: str
    phase: str
    kind: str
    """"nan" or "inf"."""
    inputs: Sequence[Numbers]
    dtype: str
    """Of the result."""
    hidden: bool = False
    """Whether the loss did not show the value, so that only its gradient carried it on."""
    infinite_number: bool = False
    """Whether a Python number given to the operation was infinite."""
    aten: str = ""
    """The operation that ran; in a backward pass, a part of the gradient of `operation`."""


_BY_FIXED_OPERATION = {
    "ctc_loss": "loss_infinite",
    "std": "std_of_one",
    "var": "std_of_one",
    "atan2": "atan2_at_origin",
    "hypot": "norm_at_zero",
    "norm": "norm_at_zero",
    "cdist": "norm_at_zero",
    "pairwise_distance": "norm_at_zero",
    "acos": "acos_at_one",
    "asin": "acos_at_one",
    "acosh": "acos_at_one",
    "atanh": "logit_at_edge",
    "logit": "logit_at_edge",
    "erfinv": "logit_at_edge",
    "ndtri": "logit_at_edge",
    "pow": "pow",
    "float_power": "pow",
    "prod": "prod",
    "cumprod": "prod",
    "xlogy": "log_of_zero",
    "digamma": "gamma_at_pole",
    "lgamma": "gamma_at_pole",
    "polygamma": "gamma_at_pole",
    "linalg_inv": "singular_matrix",
    "linalg_inv_ex": "singular_matrix",
    "linalg_eigh": "equal_eigenvalues",
    "linalg_svd": "equal_eigenvalues",
    "tan": "overflow",
}
_LOGS = ("log", "log2", "log10", "log1p")
_DIVISIONS = ("div", "reciprocal", "addcdiv", "fmod", "remainder", "floor_divide")
_NORMALISATIONS = ("batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm")
_UPDATES = (*_DIVISIONS, "rsqrt", "adam", "adamw", "adagrad", "sgd", "addcmul", "lerp")


def reason_for(found: Circumstances) -> str:
    """Return the reason's slug; a key of `reason_words.WORDS`."""
    if found.phase == "scaler":
        return "scaler"
    if found.phase == "optimizer" and found.operation in _UPDATES and _divides(found):
        return "update_division"
    if found.hidden:
        return "where_branch"
    return _of_operation(found)


def _divides(found: Circumstances) -> bool:
    fused = found.operation in {"adam", "adamw", "adagrad", "sgd"}
    return fused or (found.operation in (*_DIVISIONS, "rsqrt") and _by_zero(found))


def _of_operation(found: Circumstances) -> str:
    for rule in (_of_loss, _of_row, _of_infinities, _of_function, _of_statistics):
        if (reason := rule(found)) is not None:
            return reason
    if found.operation in _BY_FIXED_OPERATION:
        return _if_large(found, _BY_FIXED_OPERATION[found.operation])
    return _overflow(found)


def _infinities(found: Circumstances) -> bool:
    return found.infinite_number or any(item.infinities for item in found.inputs)


def _of_loss(found: Circumstances) -> str | None:
    if found.operation in {"cross_entropy", "nll_loss"}:
        return "label_masked" if _infinities(found) else _if_large(found, "empty_mean")
    return None


def _of_row(found: Circumstances) -> str | None:
    softmax = found.operation in {"softmax", "log_softmax", "logsumexp", "logcumsumexp"}
    if softmax or "attention" in found.operation:
        return "masked_row" if _infinities(found) or not _large(found) else _overflow(found)
    return None


def _of_infinities(found: Circumstances) -> str | None:
    if not _infinities(found) or found.kind != "nan" or found.phase == "backward":
        return None
    if found.operation in _DIVISIONS:
        return "inf_over_inf"
    return "inf_minus_inf" if found.operation in {"add", "sub", "sum"} else "zero_times_inf"


def _of_function(found: Circumstances) -> str | None:
    name, inputs = found.operation, found.inputs
    if name in _DIVISIONS:
        return _of_division(found)
    if name in _LOGS:
        lowest = -1.0 if name == "log1p" else 0.0
        below = any(item.smallest is not None and item.smallest < lowest for item in inputs[:1])
        return "log_of_negative" if found.kind == "nan" and below else "log_of_zero"
    if name == "sqrt":
        negative = found.phase != "backward" and found.kind == "nan"
        return "sqrt_of_negative" if negative else "sqrt_at_zero"
    if name == "rsqrt":
        return "sqrt_of_negative" if any(item.negatives for item in inputs) else "division_by_zero"
    return "exp_overflow" if name in EXPONENTIALS else None


def _of_statistics(found: Circumstances) -> str | None:
    name = found.operation
    if name == "mean" and not any(item.count for item in found.inputs):
        return "empty_mean"
    if name in _NORMALISATIONS:
        return _if_large(found, "zero_variance")
    if name in {"std", "var"}:
        return _if_large(found, _of_spread(found))
    if name in {"prod", "cumprod"} and found.phase == "forward":
        return _overflow(found)
    return None


def _of_spread(found: Circumstances) -> str:
    """std and var: of a single value in the forward pass, of equal values in the backward pass."""
    return "std_at_zero" if found.phase == "backward" else "std_of_one"


def _of_division(found: Circumstances) -> str:
    if found.phase != "backward" and not _by_zero(found):
        return _overflow(found)
    return "zero_over_zero" if found.kind == "nan" else "division_by_zero"


def _by_zero(found: Circumstances) -> bool:
    position = {"div": 1, "reciprocal": 0, "addcdiv": 2, "rsqrt": 0}.get(found.operation, 1)
    inputs = [item for item in found.inputs if item.count]
    return bool(inputs) and inputs[min(position, len(inputs) - 1)].zeros > 0


def _large(found: Circumstances) -> bool:
    """Whether a product of two inputs, or a sum of products, can leave the range of the result."""
    limit = LARGEST.get(found.dtype, 3.4e38)
    return any(item.magnitude > limit**0.5 / 4 for item in found.inputs)


def _if_large(found: Circumstances, otherwise: str) -> str:
    return _overflow(found) if _large(found) else otherwise


def _overflow(found: Circumstances) -> str:
    if found.dtype == "float16":
        return "fp16_overflow"
    if found.kind == "inf" or _large(found):
        return "overflow"
    return "invalid_operation"
