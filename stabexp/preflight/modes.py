"""Dropout and normalisation are in the mode that their part of the model needs.

What is trained is in training mode, also after from_pretrained and after an evaluation; what is
frozen is not, or its running statistics move all the same (source rows A19, B16).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from stabexp.instruments.base import Watched
from stabexp.instruments.rule_base import Finding, Rule


class TrainingMode(Rule):
    """Dropout and batch normalisation are in training mode while the model is trained."""

    slug: ClassVar[str] = "evaluation_mode"
    watches_modules: ClassVar[bool] = True

    def __init__(self) -> None:
        self._open = False
        self._step = 0
        self._modes: dict[str, set[bool]] = {}
        self._drifting: set[str] = set()

    def attach(self, watched: Watched) -> None:
        self._names = {id(module): name for name, module in watched.model.named_modules()}

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        self._open, self._step = True, step

    def backward_begins(self, scalars: Sequence[Tensor]) -> None:
        self._open = False

    def module_entered(self, module: nn.Module, inputs: Any) -> None:
        name = self._names.get(id(module))
        if not self._open or name is None:
            return
        own = list(module.parameters(recurse=False))
        frozen = bool(own) and not any(p.requires_grad for p in own)
        if isinstance(module, nn.modules.dropout._DropoutNd):
            if module.p > 0:
                self._modes.setdefault(name, set()).add(module.training)
        elif isinstance(module, nn.modules.batchnorm._BatchNorm):
            if frozen and module.training and module.track_running_stats:
                self._drifting.add(name)
            if not frozen:
                self._modes.setdefault(name, set()).add(module.training)

    def finding(self) -> Finding | None:
        if self._modes and not any(True in modes for modes in self._modes.values()):
            name = next(iter(self._modes))
            return Finding(
                rule=self.slug,
                step=0,
                place=name,
                detail=f"all of {len(self._modes)} dropout and normalisation layers that ran are "
                "in "
                f"evaluation mode ({name}, …)",
                remedy="call model.train() before training and after every evaluation; "
                "from_pretrained "
                "returns a model in evaluation mode",
                strength="suspicious",
            )
        if self._drifting:
            name = sorted(self._drifting)[0]
            return Finding(
                rule="frozen_statistics_move",
                step=0,
                place=name,
                detail=f"{len(self._drifting)} normalisation layers have frozen weights and are in "
                "training mode, so their running statistics still move",
                remedy="put frozen layers into evaluation mode: module.eval(), after every "
                "model.train()",
                strength="suspicious",
            )
        return None
