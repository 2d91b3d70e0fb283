"""Something that can learn is trained: not only a bias or two of a frozen network."""

from __future__ import annotations

from typing import ClassVar

from stabexp.instruments.base import Watched
from stabexp.instruments.rule_base import Finding, Rule

LEAST = 0.05
"""Share of the parameters below which, without a single matrix among them, little is learned."""


class AlmostNothingTrains(Rule):
    """At least one weight matrix, or a twentieth of all parameters, is in the optimizer's reach."""

    slug: ClassVar[str] = "almost_nothing_trains"

    def __init__(self) -> None:
        self._found: Finding | None = None

    def attach(self, watched: Watched) -> None:
        named = dict(watched.model.named_parameters())
        held = {id(p) for group in watched.optimizer.param_groups for p in group["params"]}
        trained = {n: p for n, p in named.items() if p.requires_grad and id(p) in held}
        total = sum(p.numel() for p in named.values())
        share = sum(p.numel() for p in trained.values()) / total if total else 1.0
        if share >= LEAST or any(p.dim() >= 2 for p in trained.values()):
            return
        names = ", ".join(list(trained)[:3]) or "none"
        frozen = next(n for n in named if n not in trained)
        self._found = Finding(
            rule=self.slug,
            step=0,
            place=frozen,
            detail=f"{share:.2%} of the {total:,} parameters are trained ({names}), none of them a "
            "matrix",
            remedy="unfreeze the layers that are to learn, and give them to the optimizer",
            strength="suspicious",
        )

    def finding(self) -> Finding | None:
        return self._found
