"""Where a bisect may start its replays, and which step it takes as the crash.

`git bisect` is told a good and a bad revision and which ones to skip. Here good is a checkpoint to
start from, bad the step taken as the one at which the divergence was detected, and what is skipped
is never started from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from stabexp.errors import ConfigError
from stabexp.records import Divergence

_RANGE = re.compile(r"(\d+)(?:\s*-\s*(\d+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a bisect was told about where to look."""

    divergence: Divergence
    """The finding to explain, detected at the step called bad."""
    good: int | None
    """The checkpoint to start from; None leaves the choice among `starts`."""
    starts: tuple[int, ...]
    """Checkpoints a replay may start from, by step, oldest first."""
    notices: tuple[str, ...] = ()
    """What was asked for without effect, one sentence each."""


def scope(
    checkpoints: Iterable[int],
    divergence: Divergence,
    *,
    last_step: int | None = None,
    good: int | None = None,
    bad: int | None = None,
    skip: str | Sequence[str] = (),
) -> Scope:
    """Return where replays may start and what they are to explain.

    Args:
        checkpoints: Steps of the usable checkpoints.
        divergence: The run's own finding.
        last_step: The last step recorded; None takes the one at which the divergence was detected.
        good: A kept checkpoint to start from; None leaves the choice open.
        bad: The step to take as the one at which the divergence was detected; None keeps it.
        skip: Checkpoints and ranges of steps never to start from: "120" or "100-150,200".

    Raises:
        ConfigError: If good is not kept, is skipped, or does not lie before bad; if bad was not
            recorded; if a range is not one, or nothing is left to start from.
    """
    kept = sorted(set(checkpoints))
    last = divergence.detected if last_step is None else last_step
    detected = divergence.detected if bad is None else bad
    if not 0 <= detected <= last:
        raise ConfigError(f"--bad {bad}: not a recorded step; the run has steps 0 to {last}")
    ranges = parse_ranges(skip)
    starts = [
        step
        for step in kept
        if step <= detected and not any(first <= step <= end for first, end in ranges)
    ]
    if good is not None:
        _check_good(good, detected, kept, starts)
    if not starts:
        before = [step for step in kept if step <= detected]
        raise ConfigError(
            f"--skip leaves nothing to start from: {_listed(before)} before step {detected}"
            if before
            else f"no checkpoint lies before step {detected}: {_listed(kept)}"
        )
    notices = [
        f"--skip {_shown(first, end)}: no checkpoint is there; {_listed(kept)}"
        for first, end in ranges
        if not any(first <= step <= end for step in kept)
    ]
    if good is not None and good > divergence.onset:
        notices.append(
            f"--good {good} lies after the onset at step {divergence.onset}, so its state may be "
            "damaged already"
        )
    return Scope(
        divergence=replace(divergence, detected=detected, onset=min(divergence.onset, detected)),
        good=good,
        starts=tuple(starts),
        notices=tuple(notices),
    )


def kept_checkpoint(step: int, checkpoints: Iterable[int], *, option: str) -> int:
    """Return `step` when a checkpoint of it is kept.

    Raises:
        ConfigError: Naming the nearest ones before and after it.
    """
    kept = sorted(set(checkpoints))
    if step in kept:
        return step
    before = [other for other in kept if other < step][-1:]
    after = [other for other in kept if other > step][:1]
    nearest = " and ".join(str(other) for other in (*before, *after))
    hint = f"the nearest are {nearest}" if before and after else f"the nearest is {nearest}"
    raise ConfigError(
        f"{option} {step}: no checkpoint of that step is kept; "
        + (hint if kept else "the run has none that can be used")
    )


def parse_ranges(skip: str | Sequence[str]) -> list[tuple[int, int]]:
    """Return the first and last step of each range in "100-150,200".

    Raises:
        ConfigError: If a part is no step and no range of steps.
    """
    texts = [skip] if isinstance(skip, str) else list(skip)
    parts = [part.strip() for text in texts for part in text.split(",")]
    ranges = []
    for part in filter(None, parts):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ConfigError(
                f"--skip {part}: expected steps or ranges of steps, for example 120 or 100-150,200"
            )
        first, end = int(match[1]), int(match[2] or match[1])
        if end < first:
            raise ConfigError(f"--skip {part}: ends before it begins; write {end}-{first}")
        ranges.append((first, end))
    return ranges


def _check_good(good: int, detected: int, kept: Sequence[int], starts: Sequence[int]) -> None:
    kept_checkpoint(good, kept, option="--good")
    if good >= detected:
        before = [step for step in kept if step < detected]
        raise ConfigError(
            f"--good {good}: does not lie before the bad step {detected}; "
            + (f"{_listed(before)} do" if before else "no checkpoint does")
        )
    if good not in starts:
        raise ConfigError(f"--good {good}: is skipped by --skip; remove one of the two")


def _shown(first: int, end: int) -> str:
    return str(first) if first == end else f"{first}-{end}"


def _listed(steps: Sequence[int]) -> str:
    if not steps:
        return "none is kept"
    return f"kept are those of steps {', '.join(map(str, steps))}"
