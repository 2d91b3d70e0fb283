"""What is known of a crash when a remedy is chosen: the run's records, and one unchanged replay."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from stabexp.detectors import opinion
from stabexp.detectors.onset import ABNORMAL, log_update_z, loss_z
from stabexp.records import Divergence, StepRecord

HEALTHY = 100
"""Steps before the onset that say what is healthy."""
JUMP = 1.5
"""Rate ÷ that of the step before above which it jumped; no ramp is so steep after a few steps."""
BURST = 8.0
"""Largest ÷ median gradient norm of healthy steps above which rare steps are out of proportion."""
EARLY = 10
"""First steps, in which a large gradient is nothing out of proportion."""
MOVED = (0.6, 1.6)
"""The parameters' norm ÷ its first value: below or above, decay may have moved it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Everything the rules look at."""

    records: Sequence[StepRecord]
    """The run's steps, oldest first."""
    crash: Divergence
    fork: int
    """The last good checkpoint."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """As configured or observed: what `detectors.opinion` asks for."""
    reproduced: bool = True
    """Whether the unchanged replay from the fork diverged too."""
    located: Mapping[str, Any] | None = None
    """The operation that made the first NaN or Inf in it, as the locator tells."""
    broken: Sequence[Mapping[str, Any]] = ()
    """Rules of the training step that it broke."""
    flagged: tuple[int, ...] = ()
    """Samples that stand out when the restored model sees each alone."""
    samples_blamed: bool = False
    """Whether an earlier crash was answered by replacing samples."""
    half: bool = False
    """Whether it trains in half precision."""

    @property
    def suspicion(self) -> tuple[str, str]:
        """The cause that the records alone suggest, and why."""
        return opinion(self.records, self.crash, self.settings)

    @property
    def healthy(self) -> list[StepRecord]:
        """The steps just before the onset."""
        return [r for r in self.records if r.step < self.crash.onset][-HEALTHY:]

    @property
    def usual_norm(self) -> float:
        """Median gradient norm of the healthy steps, NaN without one."""
        norms = [r.grad_norm for r in self.healthy if math.isfinite(r.grad_norm)]
        return median(norms) if norms else math.nan

    @property
    def largest_norm(self) -> float:
        """Largest finite gradient norm up to the onset, NaN without one."""
        norms = [r.grad_norm for r in self.records if r.step <= self.crash.onset]
        return max((n for n in norms[-HEALTHY:] if math.isfinite(n)), default=math.nan)

    @property
    def bursts(self) -> int:
        """Healthy steps before the last ones whose gradient was out of proportion and survived."""
        usual = self.usual_norm
        calm = [r for r in self.records if r.step < self.crash.onset - 2]
        return sum(usual > 0 and r.grad_norm > BURST * usual for r in calm[EARLY:])

    @property
    def highest_loss(self) -> float:
        """Highest loss of the healthy steps, NaN without one."""
        losses = [r.loss for r in self.healthy if math.isfinite(r.loss)]
        return max(losses, default=math.nan)

    @property
    def rate_jump(self) -> tuple[float, float, int] | None:
        """Rate before and after, and the step, where the rate jumped between fork and crash."""
        near = [r for r in self.records if self.fork - 1 <= r.step <= self.crash.detected]
        for before, after in pairwise(near):
            if after.step > 3 and after.lr > JUMP * before.lr > 0:
                return before.lr, after.lr, after.step
        return None

    @property
    def batch_at_fault(self) -> int | None:
        """The step whose loss stood out though no update before it had; None when none did.

        A loss is that before the update. So where it jumps after an ordinary update, it is the
        batch that is unusual and not the model. Only the first jump counts; it may come after the
        onset, which noise can put too early.
        """
        records = list(self.records)
        for index, record in enumerate(records):
            if not self.fork <= record.step <= self.crash.detected:
                continue
            if loss_z(records, index) > 2 * ABNORMAL:
                before = max(
                    (log_update_z(records, i) for i in (index - 1, index - 2) if i >= 0),
                    default=0.0,
                )
                return record.step if before <= ABNORMAL else None
        return None

    @property
    def norm_moved(self) -> float:
        """The parameters' norm at the onset as a multiple of the first one, 1.0 if unknown."""
        norms = [r.param_norm for r in self.records if r.step <= self.crash.onset]
        norms = [n for n in norms if math.isfinite(n)]
        return norms[-1] / norms[0] if norms and norms[0] > 0 else 1.0

    def samples(self, first: int, last: int) -> tuple[int, ...]:
        """Return the ids of the samples of these steps, both ends included."""
        return tuple(
            sorted({i for r in self.records if first <= r.step <= last for i in r.sample_ids})
        )
