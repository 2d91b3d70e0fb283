"""Do a few samples throw the run over, whatever the settings?"""

from __future__ import annotations

from dataclasses import replace

from stabexp.bisection.evidence.answer import Answer
from stabexp.bisection.evidence.reproduction import stands_out
from stabexp.bisection.facts import Facts
from stabexp.records import Culprit


def data(facts: Facts) -> Answer:
    """Does the crash stay away without a few samples, and not without as many others?"""
    answer = _data(facts)
    return _in_batches(answer) if facts.setup.streamed else answer


def _in_batches(answer: Answer) -> Answer:
    """Return the answer about a stream: what has a number there is a batch, not a sample."""

    def told(text: str) -> str:
        return text.replace("sample", "batch").replace("batchs", "batches")

    culprit = answer.culprit
    if culprit is not None:
        culprit = replace(
            culprit,
            place=told(culprit.place),
            detail=told(culprit.detail),
            remedy=told(culprit.remedy),
        )
    return replace(answer, detail=told(answer.detail), culprit=culprit)


def _data(facts: Facts) -> Answer:
    found = facts.data
    if found is None:
        # Another order of the same data crashes in the same way, and gradually.
        suspected = stands_out(facts)
        why = "another order of the same data crashes in the same gradual way"
        if suspected:
            why = "no search among the samples was made"
        return Answer(yes=False, detail=why, tried=not suspected)
    if found.verdict == "undecided":
        # Where nothing was cured by leaving samples out, nothing speaks for them either.
        known = bool(found.samples)
        return Answer(
            yes=None if known else False, detail=found.why, trials=found.trials, tried=known
        )
    if found.verdict != "bad_data":
        return Answer(yes=False, detail=found.why, trials=found.trials)
    shown = ", ".join(str(i) for i in found.samples[:12])
    more = ", …" if len(found.samples) > 12 else ""
    looks = f" {'; '.join(found.looks[:3])}." if found.looks else ""
    return Answer(
        yes=True,
        detail=found.why,
        trials=found.trials,
        culprit=Culprit(
            kind="samples",
            place=f"sample{'' if len(found.samples) == 1 else 's'} {shown}{more}",
            detail=f"{found.why}.{looks}",
            remedy="repair these samples or leave them out; guard the loss against the likes",
            samples=found.samples,
        ),
        cure=found.cure,
    )
