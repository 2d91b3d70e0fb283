"""How often verdicts are right, with intervals, beside simpler ways to name a cause.

Pure: results in, figures out. A draw that did not diverge says nothing about the bisect; it is
counted, and left out of every share.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from experiments.benchmark.results import Result
from stabexp.records import VARIABLES

Z95 = 1.959964
"""Standard deviations that hold 95 % of a normal distribution."""
BINS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
"""Edges of the reliability table."""
LENGTHS = ((0, 50), (50, 150), (150, 300), (300, 600), (600, 10**9))
"""Classes of steps to the divergence, first included and last excluded."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """Hits of a number of trials; hits may be an expectation and so no whole number."""

    hits: float
    count: int

    @property
    def value(self) -> float:
        """The share, NaN of nothing."""
        return self.hits / self.count if self.count else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval; (0, 1) of nothing.

        Source: Wilson 1927, "Probable inference, the law of succession, and statistical inference".
        """
        if not self.count:
            return 0.0, 1.0
        p, n, z = self.value, self.count, Z95
        centre = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, centre - half), min(1.0, centre + half)


def share(results: Iterable[Result], hit: Callable[[Result], float]) -> Share:
    """Return how many of the results are hits."""
    listed = list(results)
    return Share(hits=sum(float(hit(result)) for result in listed), count=len(listed))


def faults(results: Iterable[Result]) -> list[Result]:
    """Return the draws with one known cause that diverged."""
    return [result for result in results if not result.spare and result.diverged]


def spares(results: Iterable[Result]) -> list[Result]:
    """Return the draws at which nothing may be blamed, as far as they are what they should be.

    A healthy run belongs to them whether it diverged or not; the others only when they did, and a
    marginal one only when another order of its data does train through.
    """
    return [
        r
        for r in results
        if r.spare and r.orders_survived != 0 and (r.diverged or r.cause == "healthy")
    ]


def always_learning_rate(result: Result) -> float:
    """Return whether "the learning rate" would be right."""
    return float("learning_rate" in {result.cause, *result.also})


def telemetry_only(result: Result) -> float:
    """Return whether what the step records suggest is right."""
    return float(result.telemetry in {result.cause, *result.also})


def first_cure(result: Result) -> float:
    """Return whether the first variable that cures in the grid, in the fixed order, is right."""
    ordered = [variable for variable in VARIABLES if variable in _cures(result)]
    return float(_named(ordered[:1]) in {result.cause, *result.also})


def random_cure(result: Result) -> float:
    """Return the chance that the first variable that cures, in a random order, is right."""
    cures = _cures(result)
    if not cures:
        return float(_named([]) in {result.cause, *result.also})
    return sum(variable in {result.cause, *result.also} for variable in cures) / len(cures)


def _cures(result: Result) -> Sequence[str]:
    return result.grid.cures if result.grid is not None else result.cures


def _named(cures: Sequence[str]) -> str:
    return cures[0] if cures else "inconclusive"


BASELINES: Mapping[str, Callable[[Result], float]] = {
    "always the learning rate": always_learning_rate,
    "first cure, fixed order": first_cure,
    "first cure, random order (expected)": random_cure,
    "telemetry only": telemetry_only,
}
"""Simpler ways to name a cause."""


def confusion(results: Iterable[Result]) -> dict[tuple[str, str], int]:
    """Return how often each (known, found) pair came up."""
    return dict(Counter((result.cause, result.found) for result in results))


@dataclass(frozen=True, kw_only=True)
class Bin:
    """Verdicts with about the same confidence."""

    low: float
    high: float
    count: int
    confidence: float
    """Mean of what was said."""
    right: Share


def reliability(results: Iterable[Result]) -> list[Bin]:
    """Return what was said and what was true, by confidence, without empty bins."""
    stated = [r for r in results if r.diverged and r.found != "error"]
    bins = []
    for low, high in itertools.pairwise(BINS):
        inside = [r for r in stated if low <= r.confidence < high or r.confidence == high == 1.0]
        if inside:
            bins.append(
                Bin(
                    low=low,
                    high=high,
                    count=len(inside),
                    confidence=statistics.fmean(r.confidence for r in inside),
                    right=share(inside, lambda r: r.right),
                )
            )
    return bins


def calibration_error(bins: Sequence[Bin]) -> float:
    """Return the mean distance of confidence and share of right verdicts, weighted; NaN of nothing.

    Source: Naeini et al. 2015, "Obtaining Well Calibrated Probabilities Using Bayesian Binning".
    """
    total = sum(one.count for one in bins)
    if not total:
        return math.nan
    return sum(one.count * abs(one.confidence - one.right.value) for one in bins) / total


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What verdicts cost, for runs of about the same length."""

    low: int
    high: int
    count: int
    replays: float
    """Median."""
    steps: float
    """Median."""
    ratio: float
    """Median of replayed steps ÷ steps to the divergence."""


def costs(results: Iterable[Result]) -> list[Cost]:
    """Return the medians by length class, and of all runs last; classes without a run left out."""
    verdicts = [r for r in results if r.diverged and r.found != "error"]
    found = []
    for low, high in (*LENGTHS, (0, 10**9)):
        inside = [r for r in verdicts if low <= (r.detected or 0) + 1 < high]
        if inside:
            found.append(
                Cost(
                    low=low,
                    high=high,
                    count=len(inside),
                    replays=statistics.median(r.replays for r in inside),
                    steps=statistics.median(r.replayed_steps for r in inside),
                    ratio=statistics.median(
                        r.replayed_steps / ((r.detected or 0) + 1) for r in inside
                    ),
                )
            )
    return found


def onset_error(results: Iterable[Result], *, within: int = 2) -> Share:
    """Return how often the onset lies within some steps of where the fault struck."""
    known = [r for r in results if r.onset is not None and r.strikes is not None]
    return share(known, lambda r: abs((r.onset or 0) - (r.strikes or 0)) <= within)


def samples_found(results: Iterable[Result]) -> Share:
    """Return how often a verdict of bad data names at least one of the broken samples."""
    named = [r for r in results if r.found == "data" and r.samples]
    return share(named, lambda r: bool(set(r.samples) & set(r.found_samples)))


def grid_saving(results: Iterable[Result]) -> float:
    """Return the median of grid steps ÷ replayed steps; NaN when no grid was run."""
    ratios = [
        r.grid.steps / max(r.replayed_steps, 1)
        for r in results
        if r.grid is not None and r.found != "error"
    ]
    return statistics.median(ratios) if ratios else math.nan
