"""Follows a growing step log without ever reading it twice.

Two places in the file are remembered. The newest lines are read back from the end, as far as is
needed to know every figure's latest value, so that a run is on the board at once however long it
is. From the other end the lines are only counted, a bounded piece at a time.
"""

from __future__ import annotations

import json
import math
import os
import re
import statistics
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from stabexp.errors import TrackingError
from stabexp.records import StepRecord
from stabexp.tracking.step_log import decode_step, rewound_to

MINUTE = 60.0
"""Seconds of the run's own time that medians, largest values and rates are taken over."""

KEPT_STEPS = 1000
"""Lines read back for figures that are not measured in every step; older ones are dropped."""

TAIL_BYTES = 16 << 20
"""The most to read back at once."""

COUNTED_BYTES = 128 << 20
"""The most to count at once."""

_BLOCK = 8 << 20
_LOOKED_AT = 32
"""New steps that are always read whole, so that a figure that is new is mostly seen at once."""
_WHOLE_LOOK = 16
"""Every so many refreshes the tail is read further than seems needed: for a figure that is new."""

_REWOUND = b'{"rewound_to":'
_NUMBER = rb'("?[-+.\w]+"?)'
_HEAD = re.compile(
    rb'\{"step":(\d+),"time":'
    + _NUMBER
    + rb',"loss":'
    + _NUMBER
    + rb',"lr":'
    + _NUMBER
    + rb',"grad_norm":'
    + _NUMBER
)
_BATCH = re.compile(rb'"batch_size":(\d+)')
_SECONDS = re.compile(rb'"seconds":([-+.\w]+)')


@dataclass(frozen=True, slots=True)
class Brief:
    """What is kept of each step of the latest minute."""

    step: int
    time: float
    loss: float
    grad_norm: float
    samples: int
    seconds: float


class LiveSteps:
    """The step log of one run, as far as it is known by now."""

    def __init__(self, path: Path) -> None:
        """Know nothing yet."""
        self.path = path
        self._file = (0, 0)
        self._begin()

    def _begin(self) -> None:
        self.latest: StepRecord | None = None
        self.made = 0
        """Steps counted so far, those made again included."""
        self.skipped = 0
        self.unread = 0
        """Bytes that are not counted yet."""
        self.figures: dict[str, tuple[int, float]] = {}
        """Name of a figure of the whole model → step and value, the latest."""
        self.layers: dict[str, dict[str, tuple[int, float]]] = {}
        """Layer → kind → step and value, in the order of the model."""
        self.minute: deque[Brief] = deque()
        self._problem: TrackingError | None = None
        self._counted = self._tail = self._looks = 0

    def refresh(self) -> None:
        """Read what is new.

        Raises:
            TrackingError: If a line is damaged; the others were read.
        """
        try:
            with open(self.path, "rb") as file:
                state = os.fstat(file.fileno())
                identity = (state.st_dev, state.st_ino)
                if identity != self._file or state.st_size < self._tail:
                    self._begin()  # another file, or this one was cut off
                    self._file = identity
                size = state.st_size
                if size > self._tail:
                    self._read_tail(file, size)
                self._count(file, size)
        except FileNotFoundError:
            return
        except OSError as error:
            raise TrackingError(f"{self.path}: cannot be read: {error.strerror}") from error
        if self._problem is not None:
            raise self._problem

    def _read_tail(self, file: BinaryIO, size: int) -> None:
        begin = max(self._tail, size - TAIL_BYTES)
        file.seek(begin)
        data = file.read(size - begin)
        if begin > self._tail:
            data = data[data.find(b"\n") + 1 :]
        lines = data[: data.rfind(b"\n") + 1].splitlines()
        end = size - (len(data) - (data.rfind(b"\n") + 1))
        if not lines:
            return
        if self._tail and any(line.startswith(_REWOUND) for line in lines):
            # The run went on from an earlier step: what is known of later ones is void.
            self._forget()
            self._read_tail(file, size)
            return
        lines = lines[-max(KEPT_STEPS, _steps_in_a_minute(lines)) :]
        self._take(lines)
        self._tail = end

    def _take(self, lines: list[bytes]) -> None:
        """Take over what new lines say, the newest first."""
        known = {("", name) for name in self.figures}
        known |= {(layer, kind) for layer, kinds in self.layers.items() for kind in kinds}
        self._looks += 1
        whole = self._looks % _WHOLE_LOOK == 1
        void = math.inf
        fresh: dict[tuple[str, str], tuple[int, float]] = {}
        order: list[str] = []
        briefs: list[Brief] = []
        latest: StepRecord | None = None
        for line in reversed(lines):
            try:
                if line.startswith(_REWOUND):
                    void = min(void, rewound_to(self._parsed(line)) or 0)
                    continue
                brief = self._brief(line)
                if brief.step >= void:
                    continue
                briefs.append(brief)
                if latest is not None and not self._wanted(known, len(briefs), whole=whole):
                    continue
                record = self._record(line)
            except TrackingError as error:
                self._problem = error
                continue
            latest = latest or record
            for at, value in _figures(record):
                fresh.setdefault(at, (record.step, value))
                known.discard(at)
            if record.layers and len(record.layers) > len(order):
                order = list(record.layers)
        self._merge(fresh, order)
        self.latest = latest or self.latest
        self.minute.extend(reversed(briefs))
        self._trim()

    @staticmethod
    def _wanted(known: set[tuple[str, str]], read: int, *, whole: bool) -> bool:
        """Whether it is worth while to look for figures further back, and for new ones."""
        return read <= _LOOKED_AT or (read <= KEPT_STEPS and (whole or bool(known)))

    def _forget(self) -> None:
        """Know nothing of the end of the log, so that it is read back anew."""
        self.latest, self.figures, self.layers = None, {}, {}
        self.minute.clear()
        self._tail = self._looks = 0

    def _merge(self, fresh: dict[tuple[str, str], tuple[int, float]], order: list[str]) -> None:
        for layer in order:
            self.layers.setdefault(layer, {})
        for (layer, name), found in fresh.items():
            if layer:
                self.layers.setdefault(layer, {})[name] = found
            else:
                self.figures[name] = found

    def _trim(self) -> None:
        if self.minute:
            since = self.minute[-1].time - MINUTE
            while self.minute[0].time < since:
                self.minute.popleft()
        if self.latest is None:
            return
        oldest = self.latest.step - KEPT_STEPS
        self.figures = {k: v for k, v in self.figures.items() if v[0] >= oldest}
        for kinds in self.layers.values():
            for kind in [kind for kind, (step, _) in kinds.items() if step < oldest]:
                del kinds[kind]

    def _count(self, file: BinaryIO, size: int) -> None:
        """Count lines, at most `COUNTED_BYTES` of them; nothing is parsed."""
        left = COUNTED_BYTES
        block = _BLOCK
        while self._counted < size and left > 0:
            file.seek(self._counted)
            data = file.read(min(block, size - self._counted))
            end = data.rfind(b"\n") + 1
            if not end:
                if len(data) < block:
                    break
                block *= 2
                continue
            whole = data if end == len(data) else data[:end]
            self.made += whole.count(b"\n") - whole.count(_REWOUND)
            self.skipped += whole.count(b',"skipped":true')
            self._counted += end
            left -= end
        self.unread = max(0, self._tail - self._counted)

    def _brief(self, line: bytes) -> Brief:
        """Return what every step of the latest minute is needed for, without parsing the line."""
        found = _HEAD.match(line)
        if found is None:
            r = self._record(line)
            return Brief(r.step, r.time, r.loss, r.grad_norm, r.batch_size, r.seconds)
        step, time, loss, _, norm = (text.strip(b'"') for text in found.groups())
        samples = _BATCH.search(line, 0, 1024)
        # The sample ids, which may be long, lie between.
        seconds = _SECONDS.search(line)
        return Brief(
            int(step),
            float(time),
            float(loss),
            float(norm),
            int(samples[1]) if samples else 0,
            float(seconds[1]) if seconds else math.nan,
        )

    def _record(self, line: bytes) -> StepRecord:
        try:
            return decode_step(self._parsed(line))
        except (TypeError, ValueError, AttributeError) as error:
            raise self._damaged(line) from error

    def _parsed(self, line: bytes) -> dict[str, object]:
        try:
            value = json.loads(line)
        except ValueError:
            raise self._damaged(line) from None
        if not isinstance(value, dict):
            raise self._damaged(line)
        return value

    def _damaged(self, line: bytes) -> TrackingError:
        return TrackingError(f"{self.path}: not a step record: {line[:40]!r}; restore the file")

    @property
    def seconds(self) -> float:
        """Median wall time of a step in the latest minute; NaN where none is known."""
        return _median(each.seconds for each in self.minute)

    @property
    def loss_median(self) -> float:
        """Median loss of the latest minute."""
        return _median(each.loss for each in self.minute)

    @property
    def norm_median(self) -> float:
        """Median gradient norm of the latest minute."""
        return _median(each.grad_norm for each in self.minute)

    @property
    def norm_max(self) -> float:
        """Largest gradient norm of the latest minute; NaN or Inf where one is."""
        norms = [each.grad_norm for each in self.minute]
        return next(filter(math.isnan, norms), max(norms, default=math.nan))

    @property
    def rates(self) -> tuple[float, float]:
        """Steps and samples per second over the latest minute; NaN while there is one step."""
        if len(self.minute) < 2:
            return math.nan, math.nan
        span = self.minute[-1].time - self.minute[0].time
        if not span > 0:
            return math.nan, math.nan
        samples = sum(each.samples for each in self.minute) - self.minute[0].samples
        return (len(self.minute) - 1) / span, samples / span


def _median(values: Iterator[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return statistics.median(finite) if finite else math.nan


def _figures(record: StepRecord) -> Iterator[tuple[tuple[str, str], float]]:
    for name, value in record.metrics.items():
        yield ("", name), value
    for layer, kinds in (record.layers or {}).items():
        for kind, value in kinds.items():
            yield (layer, kind), value


def _steps_in_a_minute(lines: list[bytes]) -> int:
    """Return how many of the last lines are of the latest minute, at most 20,000."""
    last = None
    for number, line in enumerate(reversed(lines)):
        found = _HEAD.match(line)
        if found is None:
            continue
        time = float(found[2].strip(b'"'))
        last = time if last is None else last
        if time < last - MINUTE or number > 20_000:
            return number
    return len(lines)
