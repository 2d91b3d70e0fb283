"""Compiled code does not see hooks that come after it, so it runs as it was written meanwhile."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from stabexp.state.module_state import uncompiled


def run_eagerly(model: nn.Module, until: ExitStack, *, step: int) -> list[dict[str, Any]]:
    """Let compiled parts of a model run eagerly until the stack is closed.

    Returns:
        What to tell of it: nothing for a model without compiled parts, or in a replay from a later
        step.
    """
    if not any(
        uncompiled(module) is not module or module._compiled_call_impl is not None
        for module in model.modules()
    ):
        return []
    until.enter_context(torch.compiler.set_stance("force_eager"))
    return (
        [{"message": "compiled code runs eagerly, for it would not see this"}] if not step else []
    )
