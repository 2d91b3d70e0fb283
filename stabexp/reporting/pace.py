"""How long the rest of a bisect takes: measured on the replays so far, and on the run itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from stabexp.bisection.outlook import Cost, Standing
from stabexp.records import TrialRecord, TrialSpec

FEWEST = 2
"""Replays after which it is known how much of them goes on side by side."""
PLAIN, WATCHED = 1.5, 12.0
"""A replay's step in steps of the run, until it is measured: the medians over 60 bisects of small
models, loading and checking included; larger models are nearer to 1 and 3."""
SIDE_BY_SIDE = (0.05, 1.2)
"""Least and most seconds on the clock for a second in which a replay works."""


class _Measured:
    """What replays took: so much each, for loading and checking, and so much for every step.

    Medians, because the first replay of a worker process also waits for its imports.
    """

    def __init__(self) -> None:
        self._seen: list[tuple[float, int]] = []

    def add(self, record: TrialRecord) -> None:
        self._seen.append((record.seconds, record.cost))

    def seconds(self, replays: float, steps: float, *, own: float | None) -> float | None:
        """Return the time of further ones; `own` is that of a step of the run, if known."""
        if not self._seen:
            return None
        per_step = median(seconds / count for seconds, count in self._seen)
        per_step = per_step if own is None else min(own, per_step)
        each = median(seconds - per_step * count for seconds, count in self._seen)
        return max(0.0, each) * replays + per_step * steps


class Pace:
    """Turns what is left to replay into seconds, and counts down while it is replayed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with nothing measured; `clock` returns seconds."""
        self.standing: Standing | None = None
        """What was known when the last question was asked."""
        self._clock = clock
        self._done = Cost()
        """What was replayed since then."""
        self._plain, self._watched = _Measured(), _Measured()
        self._worked = 0.0
        """Seconds in the replays of this process, all together."""
        self._finished = 0
        self._busy = 0.0
        """Seconds on the clock in which at least one of them ran."""
        self._busy_since = 0.0
        self._running = 0

    def asked(self, standing: Standing) -> None:
        """Take in what is known when a question is asked."""
        self.standing, self._done = standing, Cost()

    def started(self, spec: TrialSpec) -> None:
        """Take in that a replay runs now."""
        if self._running == 0:
            self._busy_since = self._clock()
        self._running += 1

    def finished(self, record: TrialRecord, reused: bool) -> None:
        """Take in a finished replay; a reused one took no time today."""
        watched = bool(record.spec.instruments)
        steps = max(record.cost, 0)
        self._done += Cost(replays=1, steps=steps, watched=steps if watched else 0)
        # A scan's steps are single samples: they tell nothing about those of a training.
        if record.seconds > 0 and record.cost > 0 and record.spec.role != "scan":
            (self._watched if watched else self._plain).add(record)
        if reused:
            return
        self._worked += record.seconds
        self._finished += 1
        self._running = max(0, self._running - 1)
        self._busy += self._clock() - self._busy_since
        self._busy_since = self._clock()

    @property
    def left(self) -> Cost | None:
        """What is expected to be replayed from now on; None before anything was asked."""
        if self.standing is None:
            return None
        now, later, done = self.standing.now, self.standing.later, self._done
        # Its own question goes on as long as something runs, whatever was expected of it.
        here = Cost(
            replays=max(float(self._running), now.replays - done.replays),
            steps=max(0.0, now.steps - done.steps),
            watched=max(0.0, now.watched - done.watched),
        )
        return here + later

    def seconds(self, cost: Cost) -> float | None:
        """Return how long a cost takes on the clock; None when nothing tells."""
        own = self.standing.step_seconds if self.standing is not None else None
        steps, share = cost.steps - cost.watched, self._clock_share()
        plain = self._plain.seconds(cost.replays, steps, own=own)
        if plain is None and own is not None:
            plain = PLAIN * own * steps
        watched = self._watched.seconds(0.0, cost.watched, own=None)
        if watched is None and own is not None:
            watched = WATCHED * own * cost.watched
        if plain is None or watched is None:
            return None if plain is None else plain * share
        return (plain + watched) * share

    def _clock_share(self) -> float:
        if self._finished < FEWEST or self._worked <= 0:
            return 1.0
        least, most = SIDE_BY_SIDE
        return min(most, max(least, self._busy / self._worked))
