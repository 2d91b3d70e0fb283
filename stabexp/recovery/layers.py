"""With which layers does a crash come back: everything frozen but them, and everything but them.

"Unfreeze layer by layer" has two readings. With only one layer learning, a crash that comes back
needs nothing else. With only that layer frozen, a crash that stays away needed it. A layer of which
both hold is at fault beyond doubt; where no single layer is enough, the layers are unfrozen one
after the other from the output down, and the one with which the crash comes back is named. Source
row B19.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stabexp.records import Outcome

MOST = 12
"""More layers than these are asked about in groups, by the beginnings of their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLoss:
    """One recorded batch, shown to the restored model without any update."""

    step: int
    recorded: float
    restored: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerDiagnosis:
    """What the restored model makes of the batches, and which layers bring the crash back."""

    run_id: str
    from_step: int
    """The last good checkpoint, from which everything was replayed."""
    detected: int
    batches: tuple[BatchLoss, ...]
    held_out: Mapping[str, tuple[float, float]]
    """Logged metric → its last value before the checkpoint and at the crash."""
    alone: Mapping[str, Outcome]
    """Layer → what became of the run when only it was trained."""
    without: Mapping[str, Outcome]
    """Layer → what became of it when all but it were trained."""
    from_the_top: tuple[str, ...] = ()
    """Layers trained, from the output down, when the crash came back; empty when not asked."""

    @property
    def at_fault(self) -> tuple[str, ...]:
        """The layers to look at, most certain first; empty when no single one stands out."""
        both = [n for n in self.alone if came_back(self.alone[n]) and stayed_away(self.without[n])]
        enough = [n for n in self.alone if came_back(self.alone[n]) and n not in both]
        needed = [n for n in self.without if stayed_away(self.without[n]) and n not in both]
        if both or enough or needed:
            return tuple(both or enough or needed)
        return self.from_the_top[-1:]

    @property
    def batch_at_fault(self) -> int | None:
        """The step whose batch the restored model finds far worse than the others, None for none.

        Eight times the median: a hard batch is twice as bad, a broken one hundreds of times.
        """
        losses = sorted(b.restored for b in self.batches)
        if len(losses) < 4:
            return None
        usual = losses[len(losses) // 2]
        worst = max(self.batches, key=lambda b: b.restored if b.restored == b.restored else 1e308)
        bad = worst.restored != worst.restored or worst.restored > 8 * max(abs(usual), 1e-12)
        return worst.step if bad else None


def came_back(outcome: Outcome) -> bool:
    """Whether the crash came, be it later than it did."""
    return outcome in {"diverged", "delayed"}


def stayed_away(outcome: Outcome) -> bool:
    """Whether it did not; frozen layers may keep the rest from learning, which is no crash."""
    return outcome in {"cured", "stalled"}


def layers_of(parameters: Sequence[str], *, most: int = MOST) -> tuple[str, ...]:
    """Return the modules that hold parameters, in the model's order; beginnings of names if many.

    Args:
        parameters: Dotted names of trained parameters.
        most: How many to return at most, if the names have that few beginnings.
    """
    modules = list(dict.fromkeys(name.rpartition(".")[0] for name in parameters if "." in name))
    depth = max((name.count(".") + 1 for name in modules), default=0)
    while len(modules) > most and depth > 1:
        depth -= 1
        modules = list(dict.fromkeys(".".join(name.split(".")[:depth]) for name in modules))
    return tuple(modules)


def only(names: Sequence[str]) -> str:
    """Return the `layer_rate` dose with which nothing but these layers learns."""
    return ",".join(["*=0", *(f"{name}=1" for name in names)])


def all_but(name: str) -> str:
    """Return the `layer_rate` dose with which everything but this layer learns."""
    return f"{name}=0"
