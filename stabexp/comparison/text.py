"""A comparison as text for the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stabexp.comparison.result import (
    CheckpointDifference,
    Comparison,
    KeySearch,
    RecordDifference,
    StateDifference,
)

_SHOWN = 20
"""Settings listed before the rest is only counted."""


def comparison_text(found: Comparison) -> str:
    """Return where two runs part and what they were told differently, as lines of text."""
    return "\n".join(_lines(found))


def _lines(found: Comparison) -> Iterator[str]:
    yield f"{found.first} and {found.second}: {_headline(found)}"
    if found.record is not None:
        yield f"  steps: {_record(found.record)}"
    if found.checkpoint is not None:
        yield f"  state: {_checkpoint(found.checkpoint)}"
        if found.same_until is None:
            yield "  no state that both kept is equal, so no replay can start from the same one"
    if found.same_until is not None and found.parted:
        yield f"  the states before step {found.same_until} are equal"
    if found.replayed is not None:
        yield f"  replay: {_replay(found)}"
    for sentence in found.fingerprint:
        yield f"  elsewhere: {sentence}"
    if found.keys:
        yield "settings that differ:"
        width = max(len(difference.key) for difference in found.keys[:_SHOWN])
        for difference in found.keys[:_SHOWN]:
            values = f"{_value(difference.first)} | {_value(difference.second)}"
            yield f"  {difference.key:{width}}  {values}"
        if len(found.keys) > _SHOWN:
            yield f"  and {len(found.keys) - _SHOWN} more"
    else:
        yield "their settings are the same"
    if found.search is not None:
        yield _search(found.search)


def _headline(found: Comparison) -> str:
    if not found.shared_steps:
        return "they recorded no step in common"
    if found.record is not None:
        return f"they part at step {found.record.step}"
    if found.checkpoint is not None:
        return (
            f"all {found.shared_steps} common steps look the same, but not the states before step "
            f"{found.checkpoint.step}"
        )
    return f"all {found.shared_steps} common steps are the same in every bit"


def _record(found: RecordDifference) -> str:
    return f"step {found.step} has another {found.field}: {found.first} | {found.second}"


def _checkpoint(found: CheckpointDifference) -> str:
    first, *rest = found.differences
    said = first.kind == "other" or first.name.startswith(first.kind)
    kind = "" if said else f"{first.kind} "
    more = f"; {len(rest)} more differ" if rest else ""
    return f"before step {found.step}, {kind}{_state(first)}{more}"


def _state(found: StateDifference) -> str:
    if found.detail:
        return f"{found.name}: {found.detail}"
    size = f"{found.elements} of {found.of} elements"
    if found.largest == found.largest:
        size += f", by at most {found.largest:.3g}"
    if found.relative == found.relative:
        size += f" ({found.relative:.2g} of its norm)"
    return f"{found.name}: {size}"


def _replay(found: Comparison) -> str:
    assert found.replayed is not None
    steps = f"steps {found.replayed[0]} to {found.replayed[1]} of both again"
    if found.tensor is not None:
        return f"{steps}: the first tensor that differs is {found.tensor}"
    if found.not_reproduced:
        return (
            f"{steps}: every tensor is the same, and not what {' and '.join(found.not_reproduced)} "
            "recorded; so it was the machine, or something that is not deterministic"
        )
    return f"{steps}: every tensor is the same"


def _search(found: KeySearch) -> str:
    effort = f"({found.questions} trainings, {found.steps} steps)"
    match found.finding:
        case "found":
            needed = " and ".join(found.settings)
            text = f"with {needed} of {found.bad}, {found.good} diverges too {effort}"
            if found.untold:
                text += f"; whether {' and '.join(found.untold)} is needed could not be judged"
            return text
        case "good_diverges":
            return (
                f"{found.good} diverges when it is run again, with none of the other's settings "
                f"{effort}: so it is not the settings"
            )
        case "not_explained":
            return (
                f"{found.good} does not diverge with all settings of {found.bad} {effort}: so "
                "something else differs: code, data or machine"
            )
        case "unresolved":
            return f"{found.good} could not be trained to a judgement with or without the settings"


def _value(value: Any) -> str:
    text = "not set" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
