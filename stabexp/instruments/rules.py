"""Checks, on a few replayed steps, that every step does what a training step has to do.

Many faults are faults of the code: no setting cures them, and the loss often looks fine. Each rule
is an invariant that a correctly written loop keeps, whatever its model. A rule that speaks up
names the place, the figures and, where there is one, the change that would prove it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field, PrivateAttr
from torch import Tensor

from stabexp.instruments.base import Instrument, Watched
from stabexp.instruments.rule_base import Rule
from stabexp.instruments.rule_buffers import BufferNotFinite
from stabexp.instruments.rule_data import InputRange, RepeatedBatches
from stabexp.instruments.rule_gradients import (
    ClippedBeforeUnscale,
    GradientScale,
)
from stabexp.instruments.rule_initial import InitialLoss
from stabexp.instruments.rule_ledger import GradientLedger
from stabexp.instruments.rule_losses import DoubleSoftmax, LossShapesBroadcast
from stabexp.instruments.rule_numbers import BatchStatisticsOfOne, IntegerWraps, PositionsCollide
from stabexp.instruments.rule_parameters import (
    ParameterNeverMoves,
    ParameterNotInitialised,
)
from stabexp.instruments.rule_recompute import RecomputationDiffers
from stabexp.instruments.rule_state import ScheduleOnWrongClock, StateChangedBetweenSteps
from stabexp.instruments.rule_structure import AdapterScale, RouterCollapse
from stabexp.instruments.rule_trained import AlmostNothingTrains
from stabexp.instruments.rule_watch import Watch
from stabexp.instruments.rule_weights import LossDetached, MicroBatchesWeightedWrongly
from stabexp.instruments.rule_zero_grad import GradientAccumulatesOverSteps


class Rules(Instrument):
    """Runs all rules side by side; most need 3 updates, the order of the data needs more."""

    # What a correct step of several networks against each other is, is theirs to say: one's loss
    # leaves gradients in the other on purpose.
    one_optimizer: ClassVar[bool] = True

    planned_steps: int | None = Field(None, ge=1)
    """Updates of the whole training; None when unknown."""

    earlier_rates: tuple[float, ...] = ()
    """Learning rate of every update before the replay, from step 0."""

    earlier_updates: int | None = Field(None, ge=0)
    """Updates applied before the replay, without those a scaler left out; None if unknown."""

    earlier_ids: tuple[tuple[int, ...], ...] = ()
    """Sample ids of the updates before the replay, in order."""

    _watch: Watch | None = PrivateAttr(default=None)

    @property
    def failures(self) -> dict[str, str]:
        """Rules that could not cope with this training, "*" for all of them, with the reason."""
        return dict(self._watch.failures) if self._watch else {"*": "several optimizers"}

    def attach(self, watched: Watched) -> None:
        self._watch = Watch(self._rules())
        self._watch.attach(watched)

    def _rules(self) -> list[Rule]:
        ledger, weights = GradientLedger(), MicroBatchesWeightedWrongly()
        return [
            ledger,
            GradientAccumulatesOverSteps(),
            GradientScale(ledger, weights),
            ClippedBeforeUnscale(ledger),
            weights,
            ParameterNotInitialised(),
            StateChangedBetweenSteps(earlier_updates=self.earlier_updates),
            RecomputationDiffers(),
            ParameterNeverMoves(),
            AlmostNothingTrains(),
            DoubleSoftmax(),
            LossShapesBroadcast(),
            IntegerWraps(),
            PositionsCollide(),
            BatchStatisticsOfOne(),
            BufferNotFinite(),
            ScheduleOnWrongClock(
                planned_steps=self.planned_steps, earlier_rates=self.earlier_rates
            ),
            RepeatedBatches(earlier_ids=self.earlier_ids),
            InputRange(),
            InitialLoss(),
            AdapterScale(),
            RouterCollapse(),
            LossDetached(),
        ]

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        assert self._watch is not None
        self._watch.tell("batch_begins", step, ids, batch)
        self._watch.enter()

    def logged(self, loss: Tensor) -> None:
        assert self._watch is not None
        self._watch.tell("logged", loss)

    def batch_ends(self) -> None:
        assert self._watch is not None
        self._watch.leave()
        self._watch.tell("batch_ends")

    def update_ends(self, step: int) -> None:
        assert self._watch is not None
        self._watch.tell("update_ends", step)

    def detach(self) -> None:
        if self._watch is not None:
            self._watch.detach()

    def findings(self) -> list[dict[str, Any]]:
        """Return the broken rules, certain ones first, in the order of `_rules`."""
        if self._watch is None:
            return []
        found = [rule.finding() for rule in self._watch.rules]
        kept = [finding for finding in found if finding is not None]
        kept.sort(key=lambda finding: finding.strength != "certain")
        return [finding.to_json() for finding in kept]
