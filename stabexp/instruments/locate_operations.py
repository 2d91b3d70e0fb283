"""What an operation of torch is called, which of its arguments it overwrites, and what to skip.

The names are those a person would use: `aten._log_softmax.default`, `aten.log_softmax.int` and the
node `LogSoftmaxBackward0` are all "log_softmax".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload

ALIASES = {
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "dot", "addmv"), "matmul"),
    "linear": "matmul",
    "mkldnn_linear": "matmul",
    "convolution": "conv",
    "mkldnn_convolution": "conv",
    "linalg_vector_norm": "norm",
    "true_divide": "div",
    "divide": "div",
    "rsub": "sub",
    "multiply": "mul",
    "to_copy": "to",
    "copy": "to",
    "nll_loss2d": "nll_loss",
    "safe_softmax": "softmax",
    "euclidean_dist": "cdist",
    "cudnn_batch_norm": "batch_norm",
    "batch_norm_legit": "batch_norm",
    "batch_norm_with_update": "batch_norm",
    "special_logit": "logit",
    "special_erfinv": "erfinv",
    "arccos": "acos",
    "arcsin": "asin",
    "log_softmax_data": "log_softmax",
    "softmax_data": "softmax",
    "cumprod_out": "cumprod",
    "std_mean": "std",
    "var_mean": "var",
    "amp_foreach_non_finite_check_and_unscale": "unscale",
}
"""Names that mean the same operation to a person."""

NAMED_BY_FUNCTION = {
    "nll_loss": {"cross_entropy"},
    "log_softmax": {"cross_entropy"},
    "reciprocal": {"__rdiv__", "__rtruediv__"},
}
"""Operation → library functions whose name says better what the user wrote."""
_PYTHON_NAMES = {"__rdiv__": "div", "__rtruediv__": "div"}

LITERALS = {
    *("full", "full_like", "new_full", "fill", "masked_fill", "scalar_tensor", "lift_fresh"),
    *("lift_fresh_copy", "where", "constant_pad_nd", "index_fill", "index_put", "scatter"),
    *("diag_embed", "clone_constant"),
}
"""Operations by which code writes a value down, such as the -inf of an attention mask."""

SOFTMAXES = {
    *("softmax", "log_softmax", "logsumexp", "cross_entropy", "scaled_dot_product_attention"),
    *("scaled_dot_product_flash_attention_for_cpu", "logcumsumexp"),
}
"""Operations for which a row of nothing but -inf has no answer."""

_UNWRITTEN = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize"}
_OVERWRITES = {
    *("copy", "fill", "zero", "normal", "uniform", "random", "bernoulli", "exponential", "set"),
    *("geometric", "log_normal", "cauchy", "foreach_copy", "foreach_zero", "resize"),
}
_SILENT_WRITES = ("running_mean", "running_var")
"""Arguments that batch normalisation overwrites without its signature saying so."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How to watch one operation."""

    name: str
    """Short name."""
    skipped: bool
    """Makes no new number: a view, or unwritten memory."""
    unwritten: bool
    """Returns memory that nobody has written yet."""
    elementwise_lists: bool
    """The i-th of the results depends on the i-th of every list of arguments."""
    written: tuple[int | str, ...]
    """Arguments it overwrites: positions, or names of keyword arguments."""
    reads_written: bool
    """Whether what it overwrites also counts as an input."""


@cache
def plan_of(operation: OpOverload) -> Plan:
    """Return how to watch an operation; its schema says what it overwrites."""
    schema = operation._schema
    raw = schema.name.partition("::")[2]
    bare = raw.strip("_")
    written: list[int | str] = []
    for index, argument in enumerate(schema.arguments):
        silent = argument.name in _SILENT_WRITES and "backward" not in raw
        if silent or (argument.alias_info is not None and argument.alias_info.is_write):
            written.append(argument.name if argument.kwarg_only else index)
    view = bool(schema.returns) and all(
        item.alias_info is not None and not item.alias_info.is_write for item in schema.returns
    )
    lists = bare.startswith(("foreach_", "fused_adam", "fused_sgd", "fused_adagrad", "amp_foreach"))
    return Plan(
        name=short_name(raw),
        skipped=view or bare in _UNWRITTEN,
        unwritten=bare in _UNWRITTEN,
        elementwise_lists=lists,
        written=tuple(written),
        reads_written=bare not in _OVERWRITES and not any(isinstance(w, str) for w in written),
    )


def short_name(raw: str) -> str:
    """Return what a person calls an aten operation: "_foreach_addcdiv_" → "addcdiv"."""
    name = raw.strip("_")
    if name in ALIASES:
        return ALIASES[name]
    for prefix in ("foreach_", "native_", "fused_", "thnn_fused_", "special_"):
        name = name.removeprefix(prefix)
    for suffix in ("_backward_data", "_backward", "_forward", "_for_cpu"):
        name = name.removesuffix(suffix)
    return ALIASES.get(name, name)


def node_name(name: str) -> str:
    """Return the operation whose gradient an autograd node is: "SqrtBackward0" → "sqrt"."""
    name = name.rpartition("::")[2]
    match = re.fullmatch(r"(\w+?)Backward\d*", name)
    return _by_letters().get(match[1].lower(), "") if match else ""


@cache
def _by_letters() -> dict[str, str]:
    """Return operation names by their letters alone, as nodes are called: "Log1PBackward0"."""
    return {raw.replace("_", ""): short_name(raw) for raw in sorted(raw_names())}


@cache
def raw_names() -> frozenset[str]:
    """Return the name of every operation that torch has, without overloads."""
    every = torch._C._dispatch_get_all_op_names()
    return frozenset(
        name.removeprefix("aten::").partition(".")[0] for name in every if name.startswith("aten::")
    )


def called(operation: str, function: str) -> str:
    """Return the library function's name where it says better than the operation's own."""
    if function in NAMED_BY_FUNCTION.get(operation, ()):
        return _PYTHON_NAMES.get(function, function)
    return operation


def arguments(value: Any) -> list[Any]:
    """Return the tensors and numbers in a (nested) argument, in order."""
    if isinstance(value, (list, tuple)):
        return [item for part in value for item in arguments(part)]
    return [value]
