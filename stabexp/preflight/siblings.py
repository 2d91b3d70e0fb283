"""A layer, or a row of an embedding, that was added to a model starts like those it joins.

Parameters that play the same part in repeated blocks have the same deviation; the rows of new
tokens have the norm of the others (source row B8).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

from torch import nn

from stabexp.instruments.base import Watched
from stabexp.instruments.rule_base import Finding, Rule

UNLIKE = 8.0
"""Deviation of a parameter over that of its siblings, or below it."""


@dataclass(frozen=True)
class _Sibling:
    name: str
    parameter: nn.Parameter
    deviation: float


class UnlikeSiblings(Rule):
    """Parameters that play the same part in repeated blocks start alike, new ones included."""

    slug: ClassVar[str] = "unlike_siblings"

    def __init__(self) -> None:
        self._found: Finding | None = None

    def attach(self, watched: Watched) -> None:
        groups: dict[tuple[str, tuple[int, ...]], list[_Sibling]] = {}
        for name, parameter in watched.model.named_parameters():
            if parameter.dim() < 2 or parameter.numel() < 16 or not parameter.is_floating_point():
                continue
            part = (re.sub(r"\d+", "*", name), tuple(parameter.shape))
            deviation = float(parameter.detach().float().std())
            groups.setdefault(part, []).append(_Sibling(name, parameter, deviation))
        for siblings in groups.values():
            usual = median(sibling.deviation for sibling in siblings)
            if len(siblings) < 3 or not usual > 0:
                continue
            odd = [
                s
                for s in siblings
                if s.deviation > UNLIKE * usual or 0 < s.deviation < usual / UNLIKE
            ]
            if odd and 3 * len(odd) <= len(siblings) and self._found is None:
                self._found = self._say(odd[0], usual, len(siblings))
        self._found = self._found or self._new_rows(watched.model)

    def finding(self) -> Finding | None:
        return self._found

    def _say(self, odd: _Sibling, usual: float, count: int) -> Finding:
        return Finding(
            rule=self.slug,
            step=0,
            place=odd.name,
            detail=f"deviation {odd.deviation:.3g} where its {count - 1} siblings have about "
            f"{usual:.3g}",
            remedy="initialise it like its siblings; a layer that was added to a trained model "
            "with "
            "deviation 0.02",
            strength="suspicious",
        )

    @staticmethod
    def _new_rows(model: nn.Module) -> Finding | None:
        for name, module in model.named_modules():
            if not isinstance(module, nn.Embedding) or module.weight.shape[0] < 32:
                continue
            norms = module.weight.detach().float().norm(dim=1)
            usual = float(norms.median())
            wide = norms > 5 * usual
            last = int((~wide).nonzero().max()) + 1 if bool((~wide).any()) else 0
            if usual > 0 and last < len(norms) and int(wide[:last].sum()) == 0:
                return Finding(
                    rule="new_rows_too_wide",
                    step=0,
                    place=f"{name}.weight",
                    detail=f"the last {len(norms) - last} of {len(norms)} rows have norm "
                    f"{float(norms[last:].mean()):.3g}, the others {usual:.3g}",
                    remedy="start the rows of new tokens at the mean of the others, with their "
                    "deviation",
                    strength="suspicious",
                )
        return None
