"""An optimizer's state is put back in its own dtype, where torch alone would cast it silently.

`Optimizer.load_state_dict` keeps references to what it is given, and casts every floating state
tensor to the dtype of its parameter: float32 moments of a bfloat16 parameter would come back
rounded, and the replay would be off from its first step. Here only what *had* the dtype of its
parameter follows the parameter (a float16 run replayed in float32); the rest keeps its own.

A loop may give an optimizer more parameters while it runs, to unfreeze a head for example. Groups
are kept with the names of their parameters in the model, so that a fork can add them too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from stabexp.errors import CheckpointError
from stabexp.state.plain_values import Memo, from_plain, to_plain

Names = Mapping[int, str]
"""id() of a parameter → its name in the model."""


def capture_optimizer(
    optimizer: Optimizer, *, where: str, memo: Memo, names: Names | None = None
) -> dict[str, Any]:
    """Return state, parameter groups, and names, dtypes and shapes of what they hold."""
    parameters = _parameters(optimizer)
    return {
        "state": to_plain(optimizer.state_dict(), where=where, memo=memo),
        "dtypes": [parameter.dtype for parameter in parameters],
        "shapes": [tuple(parameter.shape) for parameter in parameters],
        "names": _names(optimizer, names or {}),
    }


def check_optimizer(
    optimizer: Optimizer,
    saved: Mapping[str, Any],
    *,
    where: str,
    named: Mapping[str, Tensor] | None = None,
) -> None:
    """Raise CheckpointError when the captured state is not for these parameters.

    `named` are the model's parameters: those among them that the optimizer did not hold yet when it
    was made are no hindrance.
    """
    held = _grown(optimizer, saved, named or {})
    groups = held or [group["params"] for group in optimizer.param_groups]
    then = [len(group["params"]) for group in saved["state"]["param_groups"]]
    now = [len(group) for group in groups]
    if then != now:
        raise CheckpointError(
            f"{where}: the checkpoint has parameter groups of {then} parameters, this optimizer of "
            f"{now}. Build it as the run did, with the same groups in the same order"
        )
    parameters = [parameter for group in groups for parameter in group]
    for index, (old, new) in enumerate(zip(saved["shapes"], parameters, strict=True)):
        if old != tuple(new.shape):
            raise CheckpointError(
                f"{where}: parameter {index} has shape {old} in the checkpoint, {tuple(new.shape)} "
                "here. Build it as the run did, with the parameters in the same order"
            )


def _grown(
    optimizer: Optimizer, saved: Mapping[str, Any], named: Mapping[str, Tensor]
) -> list[list[Tensor]] | None:
    """Return the parameters of every group as they were, None unless there were more than now."""
    then = saved.get("names", [])
    now = _names(optimizer, {id(parameter): name for name, parameter in named.items()})
    before, after = ({name for group in groups for name in group} for groups in (now, then))
    if None in before or not before < after or not all(name in named for name in after):
        return None
    return [[named[name] for name in group] for group in then]


def _names(optimizer: Optimizer, names: Names) -> list[list[str | None]]:
    return [[names.get(id(p)) for p in group["params"]] for group in optimizer.param_groups]


def restore_optimizer(
    optimizer: Optimizer, saved: Mapping[str, Any], *, named: Mapping[str, Tensor] | None = None
) -> None:
    """Put captured state into an optimizer over parameters of the same shapes, of any dtypes."""
    held = _grown(optimizer, saved, named or {})
    if held is not None:
        there = len(optimizer.param_groups)
        for group, parameters in zip(optimizer.param_groups, held, strict=False):
            group["params"] = parameters
        for options, parameters in zip(
            saved["state"]["param_groups"][there:], held[there:], strict=True
        ):
            optimizer.add_param_group({**from_plain(options), "params": parameters})
    tensors_before = [
        {key: value for key, value in group.items() if isinstance(value, Tensor)}
        for group in optimizer.param_groups
    ]
    exact = from_plain(saved["state"])
    groups, own = optimizer.param_groups, list(optimizer.param_groups)
    optimizer.load_state_dict(exact)
    # Which made new groups; a loop with a schedule of its own may hold the old ones.
    for group, loaded in zip(own, optimizer.param_groups, strict=True):
        group.clear()
        group.update(loaded)
    groups[:] = own
    optimizer.param_groups = groups
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
