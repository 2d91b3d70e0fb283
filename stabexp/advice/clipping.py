"""A clip norm belongs just above what is usual: it lets the training be and catches the bursts.

Below the usual norms clipping acts in nearly every step, burst or not; far above them it never
acts. What is usual is read from the norms before clipping of a run's healthy steps: their
logarithms' median and robust deviation, which a few bursts cannot move. Each candidate is then
tried on the same norms. That says what it would have done to them, not what the training would have
become: a replay shows that. Source row A15.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, quantiles

from stabexp.detectors.robust import centre_and_spread
from stabexp.errors import ConfigError

USUAL_CANDIDATES = (0.5, 1.0, 5.0, 100.0)
"""Norms that people set without looking."""
FEWEST, FEW = 10, 50
"""Norms below which nothing is usual, and below which that is said."""
FENCE_DEVIATIONS, FENCE_TIMES = 4.0, 3.0
"""A norm beyond this many robust deviations of the logarithm, and times the median, is a burst."""
ROOM = 1.25
"""What is suggested, over the 99th percentile of the usual norms."""
MOVES = 2.0
"""Times the usual norm may grow or shrink over the run before a fixed limit does not fit."""

Limiter = Callable[[Sequence[float]], Sequence[float]]
"""Norms, oldest first → the factor each one's gradients are multiplied by, at most 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What one way to clip would have done to the norms."""

    name: str
    """The norm, or what adapts it."""
    limit: float | None
    """The fixed limit; None for one that adapts."""
    clipped_share: float
    """Share of all steps in which it acts."""
    usual_clipped_share: float
    """Share of the steps without a burst in which it acts."""
    mean_reduction: float
    """Mean over all steps of how much it takes off, 0 to 1."""
    bursts_caught: int
    """Bursts it brings down to the usual range or near it."""
    largest_after: float
    """The largest norm that remains."""

    @property
    def word(self) -> str:
        """What that means, in a few words."""
        if self.clipped_share == 0:
            return "never acts"
        if self.clipped_share > 0.5:
            return "acts in most steps, bursts or not"
        if self.usual_clipped_share > 0.05:
            return "acts in many usual steps"
        return "acts in bursts only" if self.bursts_caught else "acts rarely"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipAdvice:
    """What a run's gradient norms say about its clip norm."""

    source: str
    steps: tuple[int, int]
    """First and last step that was looked at."""
    count: int
    percentiles: tuple[float, float, float, float]
    """5th, 50th, 95th and 99th of all norms looked at."""
    largest: float
    fence: float
    """A norm above is a burst."""
    bursts: int
    trend: float
    """Usual norm of the last third over that of the first."""
    limit: float
    """What to set."""
    reason: str
    configured: float | None
    """What the run clips to, None when it does not or is not known."""
    effects: tuple[Effect, ...]
    """Candidates in ascending order, the suggestion among them, then those that adapt."""
    notices: tuple[str, ...] = ()


def advise_clip(
    points: Sequence[tuple[int, float]],
    source: str,
    *,
    configured: float | None = None,
    adaptive: Sequence[tuple[str, Limiter]] = (),
    notices: Sequence[str] = (),
) -> ClipAdvice:
    """Return what to clip to.

    Args:
        points: (step, gradient norm before clipping) of the healthy steps, oldest first.
        source: What they are from, for messages.
        configured: What the run clips to.
        adaptive: Name → what adapts the limit, to be tried beside.
        notices: What the user should know about the norms.

    Raises:
        ConfigError: If there are too few finite norms.
    """
    kept = [(step, norm) for step, norm in points if math.isfinite(norm) and norm > 0]
    if len(kept) < FEWEST:
        raise ConfigError(
            f"{source}: {len(kept)} finite gradient norm(s) in healthy steps, and at least "
            f"{FEWEST} are needed to say what is usual; train longer, or log the norm at every step"
        )
    norms = [norm for _, norm in kept]
    third = len(norms) // 3
    trend = median(norms[-third:]) / median(norms[:third])
    moves = not 1 / MOVES <= trend <= MOVES
    fence = _fence(norms[-third:] if moves else norms)
    usual = [norm for norm in (norms[-third:] if moves else norms) if norm <= fence]
    limit = float(f"{ROOM * _percentile(usual, 99):.2g}")
    bursts = [norm for norm in norms if norm > fence]
    candidates = sorted({*USUAL_CANDIDATES, limit, *([configured] if configured else [])})
    few = (f"{len(norms)} norms are few; rare bursts may not be among them",)
    fixed = [
        effect(f"{norm:g}", norms, [min(1.0, norm / n) for n in norms], fence=fence, limit=norm)
        for norm in candidates
    ]
    adapted = [effect(name, norms, limiter(norms), fence=fence) for name, limiter in adaptive]
    return ClipAdvice(
        source=source,
        steps=(kept[0][0], kept[-1][0]),
        count=len(norms),
        percentiles=(
            _percentile(norms, 5),
            _percentile(norms, 50),
            _percentile(norms, 95),
            _percentile(norms, 99),
        ),
        largest=max(norms),
        fence=fence,
        bursts=len(bursts),
        trend=trend,
        limit=limit,
        reason=_reason(usual, bursts, limit, trend, moves=moves),
        configured=configured,
        effects=(*fixed, *adapted),
        notices=(*notices, *(few if len(norms) < FEW else ())),
    )


def effect(
    name: str,
    norms: Sequence[float],
    factors: Sequence[float],
    *,
    fence: float,
    limit: float | None = None,
) -> Effect:
    """Return what multiplying each norm's gradients by its factor would have done."""
    pairs = list(zip(norms, factors, strict=True))
    usual = [factor for norm, factor in pairs if norm <= fence]
    return Effect(
        name=name,
        limit=limit,
        clipped_share=fmean(factor < 1.0 for _, factor in pairs),
        usual_clipped_share=fmean(factor < 1.0 for factor in usual) if usual else 0.0,
        mean_reduction=fmean(1.0 - factor for _, factor in pairs),
        bursts_caught=sum(norm > fence >= norm * factor for norm, factor in pairs),
        largest_after=max(norm * factor for norm, factor in pairs),
    )


def _fence(norms: Sequence[float]) -> float:
    """Return the norm above which a step is no longer usual."""
    centre, spread = centre_and_spread([math.log(norm) for norm in norms])
    return max(math.exp(centre + FENCE_DEVIATIONS * spread), FENCE_TIMES * math.exp(centre))


def _percentile(values: Sequence[float], percent: int) -> float:
    if len(values) == 1:
        return values[0]
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def _reason(
    usual: Sequence[float], bursts: Sequence[float], limit: float, trend: float, *, moves: bool
) -> str:
    top = _percentile(usual, 99)
    if moves:
        grew = f"grew {trend:.2g} times" if trend > 1 else f"shrank to {trend:.2g} of what it was"
        return (
            f"the usual norm {grew} from the first third to the last, so no fixed limit fits all "
            f"of the run; {limit:g} fits its end (99 % of the norms there are below {top:.3g}). "
            "Consider one that adapts"
        )
    if not bursts:
        return (
            f"99 % of the norms are below {top:.3g} and none stands out, so nothing needs "
            f"clipping; {limit:g} would cost nothing and catch a burst that comes"
        )
    return (
        f"99 % of the usual norms are below {top:.3g}, and {len(bursts)} burst(s) reach "
        f"{min(bursts):.3g} to {max(bursts):.3g}: {limit:g} lets the usual ones pass and brings "
        "every burst down to their size"
    )
