"""Where a replay crashed, and which of the samples shown there are suspected how much."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from stabexp.bisection.data_case import DataAnswer

BEFORE, AFTER = 2, 2
"""Steps around an onset whose samples are suspected: a loss shows its cause a step or two later,
and walking back from the detection can go a step or two too far."""
STEP_WEIGHTS = {0: 16.0, -1: 6.0, -2: 3.0, 1: 1.0, 2: 0.5}
"""How likely the culprit is in a step, by its distance from the onset."""
FAR_WEIGHT = 1.0
"""The same further before the onset, divided by the distance."""
APART = 1 / 64
"""Factor on the suspicion that two samples crash together although they were in two batches."""


@dataclass(frozen=True)
class Crash:
    """A replay that diverged."""

    answer: DataAnswer
    wide: bool = False
    """Whether replacing what was shown near the onset did not help."""

    @property
    def onset(self) -> int:
        """First step that looked wrong."""
        assert self.answer.onset is not None
        return self.answer.onset

    @property
    def window(self) -> tuple[int, int]:
        """First and last step whose samples are suspected."""
        detected = self.onset if self.answer.detected is None else self.answer.detected
        last = max(self.onset, min(detected, self.onset + AFTER))
        first = min(self.answer.shown, default=0) if self.wide else self.onset - BEFORE
        return first, last

    def suspects(self) -> frozenset[int]:
        """Return what was shown in the window."""
        return frozenset(self._weighted({}))

    def moved_to(self, other: DataAnswer) -> bool:
        """Return whether another replay got past this crash, to one of its own."""
        return other.onset is not None and other.onset > self.window[1]

    def widened(self, again: DataAnswer) -> Crash:
        """Return this crash with all suspected that it or the replay `again` showed before it."""
        steps = {*self.answer.shown, *again.shown}
        shown = {s: self.answer.shown.get(s, ()) + again.shown.get(s, ()) for s in steps}
        return Crash(replace(self.answer, shown=shown), wide=True)

    def weights(self, among: frozenset[int], suspicion: Mapping[int, float]) -> dict[int, float]:
        """Return how strongly each sample shown in the window is suspected, without a unit."""
        return {s: w for s, w in self._weighted(suspicion).items() if s in among}

    def _weighted(self, suspicion: Mapping[int, float]) -> dict[int, float]:
        first, last = self.window
        found: dict[int, float] = {}
        for step, ids in self.answer.shown.items():
            if first <= step <= last:
                distance = step - self.onset
                near = STEP_WEIGHTS.get(distance) or FAR_WEIGHT / abs(distance)
                for sample in ids:
                    weight = near * suspicion.get(sample, 1.0)
                    found[sample] = max(weight, found.get(sample, 0.0))
        return found


@dataclass
class Site:
    """The suspects of one crash, the likeliest first.

    Showing the first `high` of them, with `company`, crashes; showing the first `low` does not.
    """

    first: int
    last: int
    weights: dict[int, float]
    order: list[int] = field(default_factory=list)
    low: int = 0
    high: int = 0
    company: frozenset[int] = frozenset()
    """Samples that are always shown, because they are needed."""
    alone: bool = False
    """Whether a crash was seen with a single sample of the site shown."""
    unjudged: set[int] = field(default_factory=set)
    """Cuts whose replay could not be judged."""

    def __post_init__(self) -> None:
        self._restart(sorted(self.weights, key=lambda sample: (-self.weights[sample], sample)))

    def _restart(self, order: list[int]) -> None:
        self.order, self.low, self.high, self.unjudged = order, 0, len(order), set()

    @property
    def settled(self) -> bool:
        """Whether its last needed sample needs no company, as far as is known."""
        return self.alone or (len(self.order) == 1 and not self.company)

    @property
    def open(self) -> bool:
        """Whether there is a choice left of which sample is the last needed."""
        return bool(self._cuts())

    @property
    def last_needed(self) -> int:
        """The sample without which showing the ones before it does not crash."""
        return self.order[self.high - 1]

    def _cuts(self) -> list[int]:
        return [cut for cut in range(self.low + 1, self.high) if cut not in self.unjudged]

    def cut(self, share: float) -> int:
        """Return how many to show so that they hold about `share` of the suspicion left."""
        sums = list(accumulate(self.weights[s] for s in self.order[self.low : self.high]))
        target = share * sums[-1]
        return min(self._cuts(), key=lambda cut: abs(sums[cut - self.low - 1] - target))

    def shown(self, cut: int) -> frozenset[int]:
        """Return the first `cut` suspects and the company."""
        return self.company.union(self.order[:cut])

    def crashed(self, cut: int, *, alone: bool) -> None:
        """Take in that showing the first `cut` crashes."""
        self.high = cut
        self.alone = alone

    def survived(self, cut: int) -> None:
        """Take in that showing the first `cut` does not crash."""
        self.low = max(self.low, cut)

    def skip(self, cut: int) -> bool:
        """Leave out a cut that could not be judged; return whether another one is left."""
        self.unjudged.add(cut)
        return self.open

    def look_for_company(self, batch: Collection[int]) -> bool:
        """Keep the last sample needed, and search among those before it; False when there are none.

        Only they were shown when it crashed, so what it takes besides is among them, and likely
        in the same batch.
        """
        before = self.order[: self.high - 1]
        if not before:
            return False
        for sample in before:
            self.weights[sample] *= 1.0 if sample in batch else APART
        before.sort(key=lambda sample: -self.weights[sample])
        self.company |= {self.last_needed}
        self._restart(before)
        return True


def sites_of(
    crashes: Sequence[Crash], among: frozenset[int], suspicion: Mapping[int, float]
) -> list[Site]:
    """Return the suspects of each crash, in order of time; crashes close together are one site.

    Args:
        crashes: What is to be explained.
        among: Who may be suspected; when none of them was shown near a crash, all of them are.
        suspicion: Id → factor on the suspicion, from a scan.
    """
    sites: list[Site] = []
    for crash in crashes:
        weights = crash.weights(among, suspicion)
        first, last = crash.window
        if not weights:
            wide = replace(crash, wide=True)
            weights = wide.weights(among, suspicion) or {s: suspicion.get(s, 1.0) for s in among}
            first, last = wide.window
        for site in [s for s in sites if s.first <= last + AFTER and first <= s.last + AFTER]:
            sites.remove(site)
            first, last = min(first, site.first), max(last, site.last)
            weights = {
                s: max(weights.get(s, 0.0), site.weights.get(s, 0.0))
                for s in {*weights, *site.weights}
            }
        sites.append(Site(first=first, last=last, weights=weights))
    return sorted(sites, key=lambda site: site.first)
