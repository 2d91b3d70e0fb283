"""Everything that watches a dry run: the rules of the training step, and the checks before it."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import PrivateAttr

from stabexp.instruments.rule_base import Finding, Rule
from stabexp.instruments.rule_ledger import GradientLedger
from stabexp.instruments.rules import Rules
from stabexp.preflight.channels import ChannelOrder
from stabexp.preflight.half import AdamEpsilon, HalfHeadroom, LossScaled
from stabexp.preflight.inputs import Columns, InputNotFinite, InputRange
from stabexp.preflight.labels import LabelRange, LabelsMixed, TokenRange
from stabexp.preflight.layers import JoinBroadcasts, SignalOverDepth, UnitsAlive
from stabexp.preflight.modes import TrainingMode
from stabexp.preflight.ranks import RanksInStep
from stabexp.preflight.result import ModuleRange
from stabexp.preflight.samples import BatchShrinks, CutSamples, DuplicateSamples, EmptySamples
from stabexp.preflight.schedules import RateOverTheRun, ScheduleAfterUpdate
from stabexp.preflight.siblings import UnlikeSiblings
from stabexp.preflight.tuning import Adapters, FrozenEncoder, HeadWidth
from stabexp.preflight.updates import (
    ClipBeforeUpdate,
    OneUpdatePerGradient,
    UpdateSize,
)
from stabexp.preflight.usual_rate import UsualRate

if TYPE_CHECKING:
    from stabexp.preflight.dry_run import DryRun

_REPLACED = ("schedule_on_wrong_clock", "input_range")
"""Rules of the step that have a stricter form here, where nothing was trained yet."""

_SEVERAL = (
    "double_softmax",
    "loss_shapes_broadcast",
    "integer_wraps",
    "positions_collide",
    "batch_statistics_of_one",
    "parameter_not_initialised",
    "repeated_batches",
)
"""Rules that also hold for several networks trained against each other."""


class Checks(Rules):
    """Runs the rules of the step and the checks before training side by side."""

    one_optimizer: ClassVar[bool] = False

    _run: Any = PrivateAttr(default=None)
    _headroom: HalfHeadroom | None = PrivateAttr(default=None)

    def watch(self, run: DryRun) -> None:
        """Take the run whose plan the checks ask for."""
        self._run = run

    def _rules(self) -> list[Rule]:
        run: DryRun = self._run
        rules = [rule for rule in super()._rules() if rule.slug not in _REPLACED]
        ledger = next(rule for rule in rules if isinstance(rule, GradientLedger))
        self._headroom = HalfHeadroom()
        anywhere: list[Rule] = [
            InputNotFinite(),
            InputRange(),
            Columns(),
            ChannelOrder(),
            LabelRange(),
            TokenRange(),
            LabelsMixed(),
            DuplicateSamples(),
            EmptySamples(),
            CutSamples(),
            BatchShrinks(),
            UnitsAlive(),
            UnlikeSiblings(),
            JoinBroadcasts(),
            self._headroom,
            TrainingMode(),
            FrozenEncoder(),
            AdamEpsilon(),
            RanksInStep(),
        ]
        if len(run.parts.optimizers) > 1:
            return [*(rule for rule in rules if rule.slug in _SEVERAL), *anywhere]
        rates = RateOverTheRun(run.plan)
        return [
            *rules,
            *anywhere,
            SignalOverDepth(),
            OneUpdatePerGradient(),
            ClipBeforeUpdate(),
            ScheduleAfterUpdate(),
            rates,
            UsualRate(rates),
            UpdateSize(rates),
            LossScaled(lambda: _loss_scale(ledger)),
            Adapters(),
            HeadWidth(),
        ]

    def found(self) -> list[Finding]:
        """Return what the rules found, in their order."""
        rules = self._watch.rules if self._watch is not None else []
        return [finding for rule in rules if (finding := _asked(rule, self.failures)) is not None]

    def unseen(self) -> tuple[str, ...]:
        """Return what could not be looked at, and why."""
        said = [f"{name}: {why}" for name, why in self.failures.items()]
        if self._watch is not None and not self._watch.functions:
            said.append(
                "what happens inside compiled code: check the training without torch.compile"
            )
        if self._watch is not None and len(self._run.parts.optimizers) > 1:
            said.append("the order of an update: several optimizers step against each other")
        return tuple(said)

    def ranges(self) -> tuple[ModuleRange, ...]:
        """Return the range of every module that computed something."""
        return self._headroom.ranges() if self._headroom is not None else ()


def _asked(rule: Rule, failures: dict[str, str]) -> Finding | None:
    return None if rule.slug in failures else rule.finding()


def _loss_scale(ledger: GradientLedger) -> float | None:
    """Return what the logged loss was multiplied by before backward(), over an update."""
    weights = [update.weight for update in ledger.updates if update.weight is not None]
    return median(weights) if weights else None
