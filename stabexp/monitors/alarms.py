"""What the monitors' figures make worth telling: an alarm never ends a run.

Every figure is judged by the table in `limits`. As long as a figure's healthy window is not full
its alarms wait: most of them would be about a model whose norms are large by nature. They are
judged again when it is full, or when the run ends: then by what there is of a window, or by the
table's own figure.
What is not finite is told at once, with the first layer it is in; an update that a loss scaler left
out because of it is none.
Source rows A3, A4, A6, B1, B2, B10, B11, B15, C4.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from stabexp.monitors.limits import FEW, LIMITS, WINDOW, Limit
from stabexp.records import StepRecord

SPREAD = 12.0
"""Robust deviations of the logarithm that a figure may lie above its healthy median."""

_NOT_FINITE = "not finite"


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """Something that was measured and is alarming."""

    step: int
    name: str
    words: str
    """What the figure is."""
    layer: str | None
    """Where, the first of them; None for the whole model."""
    value: float
    limit: float
    own: bool
    """Whether the limit comes from the run's own healthy window."""
    others: int = 0
    """Further layers in which it was found in the same step."""

    @property
    def message(self) -> str:
        """Return the alarm in one line."""
        place = "" if self.layer is None else f" of {self.layer}"
        more = f" and {self.others} more layers" if self.others else ""
        text = f"{self.name} at step {self.step}: {self.words}{place}{more}"
        if math.isnan(self.limit) and self.layer is not None:
            return text
        text = f"{text} {self.value:.4g}"
        if math.isnan(self.limit):
            return text
        source = "from the run's own healthy window" if self.own else "fixed"
        return f"{text} (limit {self.limit:.4g}, {source})"

    def to_event(self) -> dict[str, Any]:
        """Return it as a line of the run's events."""
        return {
            "step": self.step,
            "by": "monitors",
            "alarm": self.name,
            "message": self.message,
            "layer": self.layer,
            "value": self.value,
            "limit": self.limit,
            "others": self.others,
        }


@dataclass
class _Seen:
    """What is known of one figure in one place."""

    healthy: list[float] = field(default_factory=list)
    waiting: list[tuple[int, float]] = field(default_factory=list)
    """Step and value of what the table's own figure would have alarmed about."""
    in_row: int = 0
    told: bool = False


class AlarmWatch:
    """Judges the records of one run, in order."""

    def __init__(self, limits: Sequence[Limit] = LIMITS) -> None:
        self._limits: dict[str, list[Limit]] = {}
        for limit in limits:
            self._limits.setdefault(limit.figure, []).append(limit)
        self._seen: dict[tuple[Limit, str | None], _Seen] = {}
        self._told_not_finite = False
        self._alarms: list[Alarm] = []

    def see(self, record: StepRecord) -> list[Alarm]:
        """Return what is newly alarming after this step."""
        found = list(self._not_finite(record))
        for figure, limits in self._limits.items():
            for layer, value in _values(record, figure):
                if math.isfinite(value):
                    for limit in limits:
                        found += self._judge(limit, layer, record.step, value)
        return self._grouped(found)

    def close(self) -> list[Alarm]:
        """Return what is still waiting when the run ends before a healthy window is full."""
        found = []
        for (limit, layer), seen in self._seen.items():
            if seen.told or len(seen.healthy) >= WINDOW:
                continue
            own = len(seen.healthy) >= FEW
            bound = own_limit(limit, seen.healthy) if own else _fixed(limit)
            for step, value in seen.waiting:
                if value > bound:
                    seen.told = True
                    found.append(_alarm(limit, layer, step, value, bound, own=own))
                    break
        return self._grouped(found)

    def notices(self) -> list[str]:
        """Return one line for each kind of alarm: the first of its kind, and how many followed."""
        kinds: dict[tuple[str, str], list[Alarm]] = {}
        for alarm in self._alarms:
            kinds.setdefault((alarm.name, alarm.words), []).append(alarm)
        lines = []
        for alarms in kinds.values():
            later = sum(1 + alarm.others for alarm in alarms[1:])
            more = f"; later in {later} more" if later else ""
            lines.append(f"{alarms[0].message}{more}")
        return lines

    def _judge(self, limit: Limit, layer: str | None, step: int, value: float) -> Iterator[Alarm]:
        seen = self._seen.setdefault((limit, layer), _Seen())
        if seen.told:
            return
        if limit.times is None and limit.plus is None:
            seen.in_row = seen.in_row + 1 if _exceeds(limit, value, _fixed(limit)) else 0
            if seen.in_row >= limit.patience:
                seen.told = True
                yield _alarm(limit, layer, step, value, _fixed(limit), own=False)
            return
        if len(seen.healthy) < WINDOW:
            seen.healthy.append(value)
            if _exceeds(limit, value, _fixed(limit)):
                seen.waiting.append((step, value))
            if len(seen.healthy) < WINDOW:
                return
            again = seen.waiting
        else:
            again = [(step, value)]
        own = own_limit(limit, seen.healthy)
        for at, each in again:
            if each > own:
                seen.told = True
                yield _alarm(limit, layer, at, each, own, own=True)
                return

    def _not_finite(self, record: StepRecord) -> Iterator[Alarm]:
        whole = [("loss", record.loss), ("total gradient norm", record.grad_norm)]
        fine = math.isfinite(record.loss) and math.isfinite(record.grad_norm)
        if self._told_not_finite or record.skipped or (fine and not record.nonfinite_params):
            return
        for kind, words in (
            ("layers/nonfinite_weights", "NaN or Inf in the weights"),
            ("layers/nonfinite_grads", "NaN or Inf in the gradients"),
        ):
            for layer, value in _values(record, kind):
                self._told_not_finite = True
                yield _nonfinite(words, layer, record.step, value)
        for words, value in whole:
            if not math.isfinite(value):
                self._told_not_finite = True
                yield _nonfinite(words, None, record.step, value)

    def _grouped(self, found: Sequence[Alarm]) -> list[Alarm]:
        """Return one alarm for all layers in which the same was found in the same step."""
        groups: dict[tuple[int, str, str], list[Alarm]] = {}
        for alarm in found:
            groups.setdefault((alarm.step, alarm.name, alarm.words), []).append(alarm)
        made = [_first(group) for group in groups.values()]
        self._alarms += made
        return made


def own_limit(limit: Limit, healthy: Sequence[float]) -> float:
    """Return the upper limit that a run's own first measurements give.

    A figure that varies by orders of magnitude in health has a limit further away: `SPREAD` robust
    deviations of its logarithm.
    """
    if limit.plus is not None:
        return max(_fixed(limit), max(healthy) + limit.plus)
    assert limit.times is not None
    positive = [value for value in healthy if value > 0]
    if not positive:
        return _fixed(limit)
    logs = [math.log(value) for value in positive]
    middle = statistics.median(logs)
    deviation = 1.4826 * statistics.median(abs(value - middle) for value in logs)
    return math.exp(min(middle + max(math.log(limit.times), SPREAD * deviation), 700.0))


def _values(record: StepRecord, figure: str) -> Iterator[tuple[str | None, float]]:
    """Yield layer and value of a figure wherever a record has it."""
    if figure.startswith("layers/"):
        kind = figure[7:]
        for layer, kinds in (record.layers or {}).items():
            if kind in kinds:
                yield layer, kinds[kind]
    elif figure in record.metrics:
        yield None, record.metrics[figure]
    elif figure == "grad_norm":
        yield None, record.grad_norm
    elif figure == "loss_scale" and record.loss_scale is not None:
        yield None, record.loss_scale


def _fixed(limit: Limit) -> float:
    bound = limit.above if limit.above is not None else limit.below
    assert bound is not None
    return bound


def _exceeds(limit: Limit, value: float, bound: float) -> bool:
    return value > bound if limit.above is not None else 0 < value < bound


def _alarm(
    limit: Limit, layer: str | None, step: int, value: float, bound: float, *, own: bool
) -> Alarm:
    return Alarm(
        step=step,
        name=limit.name,
        words=limit.words,
        layer=layer,
        value=value,
        limit=bound,
        own=own,
    )


def _nonfinite(words: str, layer: str | None, step: int, value: float) -> Alarm:
    return Alarm(
        step=step,
        name=_NOT_FINITE,
        words=words,
        layer=layer,
        value=value,
        limit=math.nan,
        own=False,
    )


def _first(group: Sequence[Alarm]) -> Alarm:
    return replace(group[0], others=len(group) - 1)
