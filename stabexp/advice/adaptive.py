"""An adaptive limit is tried on recorded norms by the very code that would run: the stabiliser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stabexp.advice.clipping import Limiter

LONGEST = 20_000
"""Norms that are tried, the latest; of more, the earlier ones count as unclipped."""

KINDS = ("mean_deviation", "quantile", "z_score")


def adaptive_limiters() -> tuple[tuple[str, Limiter], ...]:
    """Return the kinds of `adaptive_clip`, each by the name an experiment file gives it."""
    return tuple((f"adaptive_clip, {kind}", _limiter({"kind": kind})) for kind in KINDS)


def _limiter(arguments: dict[str, Any]) -> Limiter:
    def factors(norms: Sequence[float]) -> Sequence[float]:
        import torch

        from stabexp.stabilisers import build

        (clip,) = build({"adaptive_clip": arguments}).values()
        weight = torch.nn.Parameter(torch.zeros(1))
        module = torch.nn.Module()
        module.register_parameter("weight", weight)
        clip.attach(module, [torch.optim.SGD([weight], lr=0.1)], step=0)
        found = [1.0] * max(0, len(norms) - LONGEST)
        with torch.no_grad():
            for norm in norms[-LONGEST:]:
                factor = clip.factors([weight], torch.tensor([norm]))
                found.append(1.0 if factor is None else min(1.0, float(factor)))
        clip.detach()
        return found

    return factors
