"""The found rate as text: the curve, the figure, how it was tried, what to type."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence

from stabexp.advice.lr_finder import FoundRate, Probe
from stabexp.advice.rate_curve import FEWEST, SHARE

BLOCKS = "▁▂▃▄▅▆▇█"
ROWS = 5
COLUMNS = 64
WIDTH = 80
WITH_WARMUP = {
    (True, True): "The ramp's figure holds with the run's warmup and without it.",
    (True, False): "The ramp's figure holds with the run's warmup only: it rests on it.",
    (False, True): "The ramp's figure holds without the run's warmup and not with it.",
    (False, False): "The ramp's figure does not hold, with the run's warmup or without.",
}
"""By whether it holds with the warmup, and without."""
ENDS = {
    "rose": "the smoothed loss rose to 4 times its best",
    "not finite": "the loss was no longer finite",
    "ramp over": "the ramp was over",
    "training over": "the training ended by itself",
}


def finder_text(found: FoundRate, *, command: str, usual: str = "") -> str:
    """Return the lines to print.

    Args:
        found: What the finder returned.
        command: What to type to train at the rate; "" when none can be recommended.
        usual: What is usual for what is trained, in a sentence.
    """
    return "\n".join(_lines(found, command, usual))


def _lines(found: FoundRate, command: str, usual: str) -> Iterator[str]:
    said = found.suggestion
    yield (
        f"the ramp: rates {found.rates[0]:.2g} to {found.rates[-1]:.2g}, {len(found.rates)} steps; "
        f"{ENDS[found.ended]}"
    )
    yield from chart(found.rates[: len(found.smoothed)], found.smoothed)
    yield (
        f"  the loss falls from {said.falls_from:.2g} to {said.falls_to:.2g}, fastest at "
        f"{said.steepest:.2g} ({said.points} points; fewer than {FEWEST} would be no answer)"
    )
    yield f"  the ramp's figure: {found.figure:.2g}, which is {SHARE} of {said.steepest:.2g}"
    yield f"  read otherwise, a tenth of the rate at the lowest loss: {0.1 * said.falls_to:.2g}"
    if found.probes:
        yield ""
        yield "tried from scratch, at a constant rate"
        yield from (_probe(probe) for probe in found.probes)
        yield from _wrapped(warmup_sentence(found))
    yield ""
    configured = f"configured: {found.configured:.3g}"
    if found.rate is None:
        yield f"no rate can be suggested: none of those tried held ({configured})"
    else:
        yield f"suggestion: {found.rate:.2g} ({configured})"
    if usual:
        yield from _wrapped(usual)
    for notice in found.notices:
        yield from _wrapped(f"! {notice}")
    yield from _wrapped(
        "put back: model, optimizer, schedule, scaler and random streams, bit for bit "
        f"(sha256 {found.state_hash[:16]} before and after)"
    )
    yield from _wrapped(
        "The figure is for this batch size and this regularisation; find it again when one of them "
        "changes."
    )
    if command:
        yield f"train with it: {command}"


def warmup_sentence(found: FoundRate) -> str:
    """Return what the trials say of the ramp's figure with and without a warmup."""
    at_figure = {probe.warmup: probe.held for probe in found.probes if probe.rate == found.figure}
    cold = at_figure.get(0)
    ramps = [ramp for ramp in at_figure if ramp]
    ramp = ramps[0] if ramps else 0
    if not ramp:
        return "It holds without a warmup." if cold else ""
    warm = at_figure[ramp]
    if found.warmup_steps:
        return WITH_WARMUP[warm, bool(cold)]
    if warm:
        return (
            f"The ramp itself is a long warmup: with {ramp} steps of it the figure holds, from a "
            f"cold start it does not. Add a warmup to use {found.figure:.2g}."
        )
    return f"A warmup of {ramp} steps does not make the ramp's figure hold either."


def chart(rates: Sequence[float], values: Sequence[float]) -> Iterator[str]:
    """Yield a curve as rows of blocks, the rate to the right on a logarithmic axis."""
    columns = min(COLUMNS, len(values))
    groups = [
        values[len(values) * i // columns : len(values) * (i + 1) // columns]
        for i in range(columns)
    ]
    means = [sum(group) / len(group) for group in groups]
    low = min(means)
    # What lies above the start says only that it went wrong; the fall is what is to be seen.
    high = max(*means[: max(1, columns // 4)], low + 1e-12)
    levels = [round((min(max(m, low), high) - low) / (high - low) * (8 * ROWS - 1)) for m in means]
    for row in reversed(range(ROWS)):
        label = f"{high:8.3g} " if row == ROWS - 1 else f"{low:8.3g} " if row == 0 else " " * 9
        yield label + "".join(_block(level - 8 * row) for level in levels)
    left, right = f"{rates[0]:.2g}", f"{rates[-1]:.2g}"
    middle = f"{math.sqrt(rates[0] * rates[-1]):.2g}".center(columns - len(left) - len(right))
    yield " " * 9 + left + middle + right


def _block(level: int) -> str:
    return " " if level < 0 else BLOCKS[min(level, 7)]


def _probe(probe: Probe) -> str:
    ramp = f"{probe.warmup} steps of warmup" if probe.warmup else "no warmup"
    ends = "broke off" if math.isnan(probe.last_loss) else f"{probe.last_loss:.4g}"
    word = "held" if probe.held else "did not hold"
    return (
        f"  {probe.rate:<8.2g} {ramp:<20} {probe.steps:>4} steps  loss {probe.first_loss:.4g} → "
        f"{ends}  {word}"
    )


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH) if text else []
