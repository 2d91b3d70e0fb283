"""Advice about the clip norm as text for the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from stabexp.advice.clipping import ClipAdvice, Effect

WIDTH = 80


def clip_text(advice: ClipAdvice, *, command: str = "") -> str:
    """Return the lines to print; `command` is what to type to follow the advice."""
    return "\n".join(_lines(advice, command))


def _lines(advice: ClipAdvice, command: str) -> Iterator[str]:
    first, last = advice.steps
    low, middle, high, top = advice.percentiles
    yield (
        f"{advice.source}: {advice.count} gradient norms before clipping, healthy steps {first} to "
        f"{last}"
    )
    yield (
        f"  5 % {low:.3g} · median {middle:.3g} · 95 % {high:.3g} · 99 % {top:.3g} · "
        f"largest {advice.largest:.3g}"
    )
    yield f"  bursts (above {advice.fence:.3g}): {advice.bursts}"
    configured = "does not clip" if advice.configured is None else f"clips to {advice.configured:g}"
    yield f"  the run {configured}"
    yield ""
    yield from textwrap.wrap(f"set {advice.limit:g}: {advice.reason}.", WIDTH)
    yield ""
    yield "what each would have done to these norms"
    yield (f"  {'clip to':<29}{'clipped':>7}{'usual':>8}{'off':>7}{'bursts':>7}{'largest':>8}")
    for effect in advice.effects:
        yield from _effect(effect, advice)
    yield from textwrap.wrap(
        "clipped: share of the steps; usual: of those without a burst; off: the mean taken off the "
        "norms; largest: the norm that is left at most",
        WIDTH,
        initial_indent="  ",
        subsequent_indent="  ",
    )
    for notice in advice.notices:
        yield from textwrap.wrap(f"! {notice}", WIDTH)
    yield from textwrap.wrap(
        "How these norms would have been clipped, not how the training would have gone on: a "
        "clipped run takes another course.",
        WIDTH,
    )
    if command:
        yield f"try it: {command}"


def _effect(effect: Effect, advice: ClipAdvice) -> Iterator[str]:
    mark = "→" if effect.limit == advice.limit else " "
    caught = f"{effect.bursts_caught}/{advice.bursts}" if advice.bursts else "–"
    line = (
        f"{mark} {effect.name:<29}{effect.clipped_share:>7.1%}{effect.usual_clipped_share:>8.1%}"
        f"{effect.mean_reduction:>7.1%}{caught:>7}{effect.largest_after:>8.3g}"
    )
    fits = len(line) + 2 + len(effect.word) <= WIDTH
    yield f"{line}  {effect.word}" if fits else line
    if not fits:
        yield f"    {effect.word}"
