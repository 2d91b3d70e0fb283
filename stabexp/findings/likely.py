"""The causes of a symptom in the order in which they are worth a look in *this* run.

First what the run speaks for, then what it says nothing of, in the order of experience, last what
it speaks against. Where nothing speaks, the learning-rate policy leads (row B21). None of it is a
proof: that takes replays.
Source rows B21, C1, C3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stabexp.findings.finding import Finding, Likely
from stabexp.findings.signs import Word, sign, where_nothing_moves
from stabexp.findings.taxonomy import CAUSES, RATE_POLICY, TAXONOMY
from stabexp.records import StepRecord


def likely_causes(
    finding: Finding,
    records: Sequence[StepRecord],
    settings: Mapping[str, Any],
    opinion: tuple[str, str] | None = None,
) -> tuple[Likely, ...]:
    """Return the causes that the taxonomy gives for a finding, most worth a look first.

    Args:
        finding: What was found.
        records: The run's steps, oldest first.
        settings: What is known of the configuration.
        opinion: The cause that the whole of the records suggests, and why; it comes first.
    """
    before = [r for r in records if r.step < finding.first_step][-64:]
    at = [r for r in records if finding.first_step <= r.step <= finding.last_step]
    names = list(TAXONOMY[finding.symptom].causes)
    words: dict[str, Word] = {name: sign(name, before, at, settings) for name in names}
    if finding.symptom == "not_decreasing":
        words |= where_nothing_moves(before or at)
    if opinion is not None and opinion[0] in CAUSES:
        cause = opinion[0]
        names = [cause, *(name for name in names if name != cause)]
        words[cause] = ("for", opinion[1])
    silent = not any(word is not None and word[0] == "for" for word in words.values())

    def rank(name: str) -> tuple[int, int, int]:
        word = words[name]
        side = 1 if word is None else 0 if word[0] == "for" else 2
        policy = 0 if silent and side == 1 and name in RATE_POLICY else 1
        return side, policy, names.index(name)

    return tuple(
        Likely(
            cause=name,
            text=CAUSES[name],
            weight=word[0] if (word := words[name]) is not None else "",
            why=word[1] if word is not None else "",
        )
        for name in sorted(names, key=rank)
    )
