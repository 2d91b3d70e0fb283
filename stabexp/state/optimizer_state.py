"""An optimizer's state is put back in its own dtype, where torch alone would cast it silently.

`Optimizer.load_state_dict` keeps references to what it is given, and casts every floating state
tensor to the dtype of its parameter: float32 moments of a bfloat16 parameter would come back
rounded, and the replay would be off from its first step. Here only what *had* the dtype of its
parameter follows the parameter (a float16 run replayed in float32); the rest keeps its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from stabexp.errors import CheckpointError
from stabexp.state.plain_values import Memo, from_plain, to_plain


def capture_optimizer(optimizer: Optimizer, *, where: str, memo: Memo) -> dict[str, Any]:
    """Return state, parameter groups, and the dtypes and shapes of the parameters they are for."""
    parameters = _parameters(optimizer)
    return {
        "state": to_plain(optimizer.state_dict(), where=where, memo=memo),
        "dtypes": [parameter.dtype for parameter in parameters],
        "shapes": [tuple(parameter.shape) for parameter in parameters],
    }


def check_optimizer(optimizer: Optimizer, saved: Mapping[str, Any], *, where: str) -> None:
    """Raise CheckpointError when the captured state is not for these parameters."""
    then = [len(group["params"]) for group in saved["state"]["param_groups"]]
    now = [len(group["params"]) for group in optimizer.param_groups]
    if then != now:
        raise CheckpointError(
            f"{where}: the checkpoint has parameter groups of {then} parameters, this optimizer of "
            f"{now}. Build it as the run did, with the same groups in the same order"
        )
    for index, (old, new) in enumerate(zip(saved["shapes"], _parameters(optimizer), strict=True)):
        if old != tuple(new.shape):
            raise CheckpointError(
                f"{where}: parameter {index} has shape {old} in the checkpoint, {tuple(new.shape)} "
                "here. Build it as the run did, with the parameters in the same order"
            )


def restore_optimizer(optimizer: Optimizer, saved: Mapping[str, Any]) -> None:
    """Put captured state into an optimizer over parameters of the same shapes, of any dtypes."""
    tensors_before = [
        {key: value for key, value in group.items() if isinstance(value, Tensor)}
        for group in optimizer.param_groups
    ]
    exact = from_plain(saved["state"])
    optimizer.load_state_dict(exact)
    for group, before in zip(optimizer.param_groups, tensors_before, strict=True):
        for key, tensor in before.items():
            if isinstance(group.get(key), Tensor):
                # A learning rate held in a tensor: it was copied to the CPU, and compiled code
                # and captured graphs know the object itself.
                group[key] = (
                    tensor.copy_(group[key])
                    if _same_kind(tensor, group[key])
                    else (group[key].to(tensor.device))
                )
    for index, parameter in enumerate(_parameters(optimizer)):
        loaded = optimizer.state.get(parameter, {})
        for key, value in exact["state"].get(index, {}).items():
            if key == "step" or not isinstance(value, Tensor):
                continue  # torch already leaves both alone
            follows = value.dtype == saved["dtypes"][index]
            dtype = parameter.dtype if follows else value.dtype
            now = loaded.get(key)
            if isinstance(now, Tensor) and now.dtype != dtype:
                loaded[key] = value.to(device=now.device, dtype=dtype)


def _same_kind(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and not one.requires_grad


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
