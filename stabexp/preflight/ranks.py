"""A process that is one of several trains together with the others, not beside them.

The environment says how many there are (source row B10). Without a wrapper that adds up gradients
every rank trains a model of its own, and only one of them is saved.
"""

from __future__ import annotations

import os
from typing import ClassVar

import torch
from torch import nn

from stabexp.instruments.base import Watched
from stabexp.instruments.rule_base import Finding, Rule

_WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel", "DeepSpeedEngine", "FSDPModule")


def _is_wrapped(model: nn.Module) -> bool:
    kinds = {base.__name__ for module in model.modules() for base in type(module).__mro__}
    sharded = any(type(p).__name__ == "DTensor" for p in model.parameters())
    return sharded or bool(kinds & set(_WRAPPERS))


class RanksInStep(Rule):
    """With more than one rank, gradients are averaged over them."""

    slug: ClassVar[str] = "ranks_out_of_step"

    def __init__(self) -> None:
        self._found: Finding | None = None

    def attach(self, watched: Watched) -> None:
        text = os.environ.get("WORLD_SIZE", "1")
        ranks = int(text) if text.isdigit() else 1
        if ranks < 2 or _is_wrapped(watched.model):
            return
        joined = torch.distributed.is_available() and torch.distributed.is_initialized()
        self._found = Finding(
            rule=self.slug,
            step=0,
            place="the model",
            detail=f"WORLD_SIZE is {ranks} and the model is not wrapped for distributed training"
            + ("" if joined else ", nor was a process group made"),
            remedy="wrap it: DistributedDataParallel(model), and give each rank its own part of "
            "the "
            "data with a DistributedSampler",
        )

    def finding(self) -> Finding | None:
        return self._found
