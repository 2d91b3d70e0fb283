"""The gradient that reaches the update is the logged loss's own: once, whole, and of its size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from stabexp.instruments.rule_base import Finding, Rule, Strength
from stabexp.instruments.rule_ledger import GradientLedger, Update
from stabexp.instruments.rule_weights import MicroBatchesWeightedWrongly

_ADAPTIVE = ("adam", "adagrad", "rmsprop", "adafactor", "lion", "muon", "rprop")


@dataclass(frozen=True)
class _Row:
    update: Update
    weight: float
    factor: float

    @property
    def ratio(self) -> float:
        """The gradient used over the logged loss's own."""
        return self.weight * self.factor


class GradientScale(Rule):
    """The gradient used is the logged loss's, not a multiple of it."""

    slug: ClassVar[str] = "gradient_scale"

    def __init__(self, ledger: GradientLedger, weights: MicroBatchesWeightedWrongly) -> None:
        self.ledger = ledger
        self.weights = weights

    def finding(self) -> Finding | None:
        ledger = self.ledger
        rows = [
            _Row(update, update.weight, update.factor)
            for update in ledger.updates
            if update.weight and update.factor and update.backwards
        ]
        if len(rows) < 3 or len(rows) < 0.6 * len(ledger.updates):
            return None
        name = type(ledger.optimizer).__name__.lower()
        adaptive = any(part in name for part in _ADAPTIVE)
        for test in (self._scale_kept, self._scale_twice, self._accumulated, self._divided):
            seen = [row for row in rows if test(row)]
            if len(seen) >= max(3, 0.8 * len(rows)):
                says = self._say(test.__name__, seen[0], adaptive)
                micro = test in (self._accumulated, self._divided)
                ratios = [self._whole(row) if micro else row.ratio for row in seen]
                return self._make(seen, rows, sorted(ratios)[len(seen) // 2], *says)
        return self._odd(rows)

    def _scaled(self, row: _Row) -> bool:
        """Return whether the loss was multiplied by a loss scale, the user's own or a scaler's."""
        if self.ledger.scaler is not None and self.ledger.scaler.is_enabled():
            return row.weight >= 2
        known = round(row.weight) in self.ledger.batch_sizes
        return row.weight >= 256 and math.log2(row.weight) % 1 == 0 and not known

    def _scale_kept(self, row: _Row) -> bool:
        return self._scaled(row) and abs(row.factor - 1) <= 0.02

    def _scale_twice(self, row: _Row) -> bool:
        return row.weight >= 2 and abs(row.factor * row.weight**2 - 1) <= 0.05

    def _whole(self, row: _Row) -> float:
        """Return how often the update counts its mean loss: once, or once per micro-batch."""
        total = self.weights.totals.get(row.update.step)
        if total is not None:
            return total * row.factor
        # Who logs a loss that was divided already logs a part of the mean, not a mean.
        return math.nan if row.update.divided else row.ratio

    def _accumulated(self, row: _Row) -> bool:
        count = row.update.backwards
        return count > 1 and abs(self._whole(row) - count) <= 0.02 * count

    def _divided(self, row: _Row) -> bool:
        count = row.update.backwards
        return count > 1 and abs(self._whole(row) * count - 1) <= 0.02

    @staticmethod
    def _say(kind: str, row: _Row, adaptive: bool) -> tuple[str, str, Strength]:
        count, scale = row.update.backwards, f"{row.weight:.6g}"
        # To Adam and its like the size of the gradient is nearly the same.
        strength: Strength = "suspicious" if adaptive else "certain"
        says: dict[str, tuple[str, str, Strength]] = {
            "_scale_kept": (
                f"the loss was multiplied by {scale} and the gradients never divided by it",
                "unscale the gradients before the update (scaler.step does)",
                "certain",
            ),
            "_scale_twice": (
                f"the gradients were divided by the loss scale {scale} twice",
                "unscale once: remove the second division",
                "certain",
            ),
            "_accumulated": (
                f"{count} micro-batches were added up and not divided by {count}",
                f"divide each micro-batch's loss by {count} before backward()",
                strength,
            ),
            "_divided": (
                f"the mean over {count} micro-batches was divided by {count} twice",
                "divide the micro-batches' loss or the gradients, not both",
                strength,
            ),
        }
        return says[kind]

    def _odd(self, rows: list[_Row]) -> Finding | None:
        """Tell of a constant factor that the loop applies after backward(), for no known reason."""
        factors, norms = [row.factor for row in rows], [row.update.norm for row in rows]
        middle = sorted(rows, key=lambda row: row.ratio)[len(rows) // 2]
        steady = [row for row in rows if abs(row.ratio / middle.ratio - 1) <= 0.02]
        # A norm that is brought to one size every time is a normalisation, not a factor.
        if len(steady) < max(3, 0.8 * len(rows)) or max(norms) <= 1.2 * min(norms):
            return None
        if 0.67 < middle.ratio < 1.5 or all(0.67 < factor < 1.5 for factor in factors):
            return None
        what = (
            f"between backward() and the update the gradients were multiplied by "
            f"{middle.factor:.4g} while the loss had been multiplied by {middle.weight:.4g}"
        )
        remedy = "look at what changes the gradients between backward() and the update"
        return self._make(steady, rows, middle.ratio, what, remedy, "suspicious")

    def _make(
        self,
        seen: list[_Row],
        rows: list[_Row],
        ratio: float,
        what: str,
        remedy: str,
        strength: Strength,
    ) -> Finding:
        changes = seen[0].update.changes
        own = [c for c in changes if c.kind == "loop" and c.factor not in (None, 1.0)]
        return Finding(
            rule=self.slug,
            step=seen[0].update.step,
            place=own[-1].place if own else "optimizer.step",
            detail=f"the gradient used in the update is {ratio:.4g} × that of the logged loss, at "
            f"{len(seen)} of {len(rows)} updates: {what}",
            remedy=remedy,
            strength=strength,
            cure=("gradient_scale", 1.0 / ratio),
        )


class ClippedBeforeUnscale(Rule):
    """A gradient norm is limited only after the loss scale was taken out of it."""

    slug: ClassVar[str] = "clipped_before_unscale"

    def __init__(self, ledger: GradientLedger) -> None:
        self.ledger = ledger

    def finding(self) -> Finding | None:
        seen = [found for u in self.ledger.updates if (found := self._look(u)) is not None]
        if len(seen) < 2:
            return None
        update, where, scale = seen[0]
        return Finding(
            rule=self.slug,
            step=update.step,
            place=where,
            detail=f"the gradient norm was limited while the gradients were still multiplied by "
            f"the loss scale {scale:.6g}, at {len(seen)} updates, so the limit was in effect "
            f"{scale:.6g} times smaller",
            remedy="call scaler.unscale_(optimizer) before clipping",
        )

    @staticmethod
    def _look(update: Update) -> tuple[Update, str, float] | None:
        """Return where a clip came before a division by the scale, and the scale."""
        if update.weight is None or update.weight < 2:
            return None
        scale = update.weight
        for index, change in enumerate(update.changes):
            unscales = change.kind == "loop" and change.factor is not None
            if not unscales or abs((change.factor or 0.0) * scale - 1) > 0.02:
                continue
            before = update.changes[:index]
            clips = [c for c in before if c.kind == "clip"]
            if clips:
                return update, clips[0].place, scale
            norms = [i for i, c in enumerate(before) if c.kind == "norm"]
            if norms and any(
                c.kind == "loop" and c.factor is not None and c.factor < 0.99
                for c in before[norms[0] :]
            ):
                return update, before[norms[0]].place, scale
        return None
