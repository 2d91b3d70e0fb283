"""Running statistics and other buffers stay finite: evaluation reads them, the loss does not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import nn

from stabexp.instruments.base import Watched
from stabexp.instruments.rule_base import Finding, Rule


class BufferNotFinite(Rule):
    """Running statistics and other buffers stay finite, and inside their number format."""

    slug: ClassVar[str] = "buffer_not_finite"

    def __init__(self) -> None:
        self._found: Finding | None = None
        self._step = 0

    def attach(self, watched: Watched) -> None:
        self._model = watched.model
        statistics = {
            f"{name}.{buffer}".lstrip(".")
            for name, module in watched.model.named_modules()
            if isinstance(module, nn.modules.batchnorm._NormBase)
            for buffer, _ in module.named_buffers(recurse=False)
        }
        self._statistics = statistics
        self._infinite = {
            name
            for name, buffer in watched.model.named_buffers()
            if name not in statistics and not bool(torch.isfinite(buffer).all())
        }
        """Meant to be infinite: the masks of attention."""

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        self._step = step
        self._look()

    def update_ends(self, step: int) -> None:
        self._step = step
        self._look()

    def _look(self) -> None:
        if self._found is not None:
            return
        for name, buffer in self._model.named_buffers():
            if not buffer.is_floating_point() or name in self._infinite or not buffer.numel():
                continue
            half = buffer.dtype == torch.float16
            if bool(torch.isfinite(buffer).all()):
                top = float(buffer.abs().max()) if half and name in self._statistics else 0.0
                if top > 32768:
                    self._found = self._half(name, f"has reached {top:.4g} of at most 65504")
                continue
            bad = buffer[~torch.isfinite(buffer)]
            kind = "nan" if math.isnan(float(bad[0])) else "inf"
            text = f"holds {bad.numel()} × {kind} of {buffer.numel()} values"
            if half and name in self._statistics:
                self._found = self._half(name, text)
            else:
                self._found = Finding(
                    rule=self.slug,
                    step=self._step,
                    place=name,
                    detail=f"the buffer {text}: the training loss does not see it, evaluation does",
                    remedy="keep it in float32 all the way, and look at what is written into it",
                    cure=("precision", "fp32"),
                )
            return

    def _half(self, name: str, text: str) -> Finding:
        return Finding(
            rule="statistics_in_half",
            step=self._step,
            place=name,
            detail=f"the statistics are kept in float16 and {text}",
            remedy="keep normalisation statistics in float32",
            cure=("precision", "fp32"),
        )

    def finding(self) -> Finding | None:
        return self._found
