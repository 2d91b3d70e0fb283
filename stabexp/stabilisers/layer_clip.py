"""Clips layers of different kinds to different norms: attention to 1.0, all others to 0.5.

One total norm lets a single layer's spike shrink everybody's gradient. Here each layer has its own
limit, and only the layer that exceeds it is scaled. With `convolution` as the only rule and no
limit for others, just the convolutions of a diffusion model are clipped. Source rows B12, B16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from pydantic import Field, PrivateAttr
from torch import Tensor, nn
from torch.optim import Optimizer

from stabexp.errors import ConfigError
from stabexp.stabilisers.base import Stabiliser
from stabexp.stabilisers.clip_rules import clip_factors
from stabexp.stabilisers.model_parts import is_attention, is_convolution, matches
from stabexp.state.module_state import uncompiled

KINDS = ("attention", "convolution")


class LayerClip(Stabiliser):
    """Clips each layer's gradient to the limit of its kind."""

    limits: dict[str, float | None] = Field({"attention": 1.0})
    """Kind (attention, convolution) or name pattern → largest norm; the first that fits counts."""

    other: float | None = Field(0.5, gt=0)
    """Largest norm of layers that no rule names; empty for no limit."""

    by: Literal["parameter", "layer", "rule"] = "layer"
    """What a norm is taken over: one parameter, a module's own parameters, or all of one rule."""

    _rules: dict[int, tuple[str, float]] = PrivateAttr(default_factory=dict)
    _plans: dict[tuple[int, ...], tuple[Tensor, Tensor, Tensor]] = PrivateAttr(default_factory=dict)
    _clipped: Tensor | None = PrivateAttr(None)

    def attach(self, model: nn.Module, optimizers: Sequence[Optimizer], *, step: int) -> None:
        """Find out which rule holds for each parameter.

        Raises:
            ConfigError: If a rule fits no parameter, or a limit is not above 0.
        """
        for rule, limit in self.limits.items():
            if limit is not None and not limit > 0:
                raise ConfigError(
                    f"stabilisers.layer_clip.limits.{rule}: expected a number above 0, found "
                    f"{limit}; leave it empty for no limit"
                )
        self._rules, self._plans, self._clipped = {}, {}, None
        used: set[str] = set()
        for path, name, parameter in _parameters(uncompiled(model)):
            chosen = next((r for r in self.limits if _fits(r, path, name)), None)
            limit = self.other if chosen is None else self.limits[chosen]
            used |= set() if chosen is None else {chosen}
            if limit is None or id(parameter) in self._rules:
                continue
            layer = name.rpartition(".")[0]
            group = {"parameter": name, "layer": layer, "rule": chosen or ""}[self.by]
            self._rules[id(parameter)] = (group, limit)
        default = type(self).model_fields["limits"].default
        unused = [] if self.limits == default else [r for r in self.limits if r not in used]
        if unused:
            raise ConfigError(
                f"stabilisers.layer_clip.limits.{unused[0]}: no parameter of the model is in it; "
                f"name modules as model.named_modules() does, or one of {', '.join(KINDS)}"
            )

    def factors(self, parameters: Sequence[Tensor], gradient_norms: Tensor) -> Tensor | None:
        key = tuple(map(id, parameters))
        if key not in self._plans:
            if len(self._plans) > 64:  # which parameters have gradients differs at every step
                self._plans.clear()
            self._plans[key] = self._plan(parameters, gradient_norms)
        members, groups, limits = self._plans[key]
        if not len(members):
            return None
        # Norms of all groups in one call: rows of members, filled up with a norm of 0.
        filled = torch.cat([gradient_norms, gradient_norms.new_zeros(1)])
        totals = filled[members].norm(dim=1)
        found = clip_factors(totals, limits)
        clipped = (found < 1.0).sum()
        self._clipped = clipped if self._clipped is None else self._clipped + clipped
        return torch.cat([found, found.new_ones(1)])[groups]

    def _plan(self, parameters: Sequence[Tensor], norms: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return members of each group (groups × largest), group of each parameter, and limits."""
        names: dict[tuple[str, float], list[int]] = {}
        for index, parameter in enumerate(parameters):
            if (rule := self._rules.get(id(parameter))) is not None:
                names.setdefault(rule, []).append(index)
        rows = list(names.values())
        widest = max(map(len, rows), default=0)
        nobody = len(parameters)
        padded = [[*row, *[nobody] * (widest - len(row))] for row in rows]
        group = {index: number for number, row in enumerate(rows) for index in row}
        of_each = [group.get(index, len(rows)) for index in range(len(parameters))]
        device = norms.device
        return (
            torch.tensor(padded, dtype=torch.int64, device=device),
            torch.tensor(of_each, dtype=torch.int64, device=device),
            torch.tensor([limit for _, limit in names], dtype=norms.dtype, device=device),
        )

    def measured(self) -> Mapping[str, Tensor]:
        return {} if self._clipped is None else {"layer_clip/clipped": self._clipped}

    def state_dict(self) -> dict[str, Any]:
        return {} if self._clipped is None else {"clipped": self._clipped.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if "clipped" in state:
            self._clipped = state["clipped"].clone()


Path = list[tuple[str, nn.Module]]


def _parameters(model: nn.Module) -> list[tuple[Path, str, Tensor]]:
    """Return (modules it lies in, outermost first; name; parameter), tied ones several times."""
    modules = dict(model.named_modules(remove_duplicate=False))
    found: list[tuple[Path, str, Tensor]] = []
    for name, parameter in model.named_parameters(remove_duplicate=False):
        parts = name.split(".")[:-1]
        path: Path = [(parts[i], modules[".".join(parts[: i + 1])]) for i in range(len(parts))]
        found.append((path, name, parameter))
    return found


def _fits(rule: str, path: Path, name: str) -> bool:
    if rule == "attention":
        return is_attention(path)
    if rule == "convolution":
        return bool(path) and is_convolution(path[-1][1])
    return matches(name, rule)
