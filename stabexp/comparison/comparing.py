"""Compares two recorded runs: their steps, then their saved states, then a replay of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from stabexp.bisection.tensor_difference import first_difference
from stabexp.comparison.configuration import differing_keys
from stabexp.comparison.replaying import Asked, Side, search_keys, watched_replay
from stabexp.comparison.result import Comparison
from stabexp.comparison.states import common_checkpoints, first_differing_checkpoint
from stabexp.comparison.step_records import first_differing_record, shared_steps
from stabexp.errors import ConfigError
from stabexp.state.fingerprint import differences
from stabexp.tracking.manifest import read_json

REPLAY_AT_MOST = 200
"""Steps to watch closely: digests of every tensor of more would fill the memory."""
GRACE = 20
"""Steps past the bad run's divergence before the good run counts as stable."""


def compare(
    first: Side,
    second: Side,
    *,
    replay: bool = False,
    search: bool = False,
    steps: int | None = None,
    progress: Callable[[Asked], None] = lambda asked: None,
) -> Comparison:
    """Return where two runs part and what they were told differently.

    Args:
        first: A run.
        second: Another one, or a replay of the first.
        replay: Replay both from the last state they share, to name the first differing tensor.
        search: Find out which of the differing settings make one of them diverge.
        steps: How far each training of the search goes; None goes a little past the divergence.
        progress: Told every question of the search with its answer.

    Raises:
        ConfigError: If a search is asked for and not exactly one of the two diverged, or their
            settings are the same.
    """
    roles = _good_and_bad(first, second) if search else None
    record = first_differing_record(first.records, second.records)
    pairs = common_checkpoints(first.checkpoints, second.checkpoints)
    checkpoint = first_differing_checkpoint(first.checkpoints, second.checkpoints)
    # Not past the first difference of either kind: states can be equal again later.
    limits = [d.step for d in (record, checkpoint) if d is not None]
    equal = [step for step, same in pairs if same and step <= min(limits, default=step)]
    same_until = max(equal, default=None)
    found = Comparison(
        first=first.run_id,
        second=second.run_id,
        shared_steps=shared_steps(first.records, second.records),
        record=record,
        same_until=same_until,
        checkpoint=checkpoint,
        keys=differing_keys(first.settings, second.settings),
        fingerprint=_fingerprints(first, second),
    )
    if replay and same_until is not None and limits:
        until = min(record.step + 1 if record else limits[0], same_until + REPLAY_AT_MOST)
        found = _with_replay(found, first, second, from_step=same_until, until_step=until)
    if roles is not None:
        found = _with_search(found, *roles, steps=steps, progress=progress)
    return found


def _with_replay(
    found: Comparison, first: Side, second: Side, *, from_step: int, until_step: int
) -> Comparison:
    a, a_records = watched_replay(first, from_step=from_step, until_step=until_step)
    b, b_records = watched_replay(second, from_step=from_step, until_step=until_step)
    pairs = ((first, a_records), (second, b_records))
    return replace(
        found,
        tensor=first_difference(a, b),
        replayed=(from_step, until_step - 1),
        not_reproduced=tuple(
            side.run_id
            for side, records in pairs
            if first_differing_record(side.records, records) is not None
        ),
    )


def _with_search(
    found: Comparison,
    good: Side,
    bad: Side,
    *,
    steps: int | None,
    progress: Callable[[Asked], None],
) -> Comparison:
    assert bad.divergence is not None
    limit = steps or bad.divergence.detected + 1 + GRACE
    searched = search_keys(good, bad, steps=limit, progress=progress)
    return replace(found, search=searched)


def _good_and_bad(first: Side, second: Side) -> tuple[Side, Side]:
    if (first.divergence is None) == (second.divergence is None):
        both = "neither" if first.divergence is None else "each"
        raise ConfigError(
            f"--search: {both} of {first.run_id} and {second.run_id} diverged; it needs one run "
            "that diverged and one that did not"
        )
    if not differing_keys(first.settings, second.settings):
        raise ConfigError(
            f"--search: {first.run_id} and {second.run_id} have the same settings, so something "
            "else makes the difference; see where they part with --replay"
        )
    return (first, second) if first.divergence is None else (second, first)


def _fingerprints(first: Side, second: Side) -> tuple[str, ...]:
    files = [side.directory / "fingerprint.json" for side in (first, second)]
    if not all(file.exists() for file in files):
        return ()
    one, other = (dict(read_json(file)) for file in files)
    for facts in (one, other):
        facts.pop("configuration", None)  # the settings are compared key by key
    return tuple(differences(one, other))
