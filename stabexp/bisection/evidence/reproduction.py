"""Does the crash come back by itself, and does something too small to be a remedy cure it?"""

from __future__ import annotations

from collections.abc import Sequence

from stabexp.bisection.evidence.answer import Answer, changed, keys_of
from stabexp.bisection.evidence.step_size import long_tail, struck
from stabexp.bisection.facts import NOTHING, Facts
from stabexp.records import Divergence, TrialRecord

BETTER = 0.98
"""Share of the loss of guessing below which a loss is better than that."""
FEW_SAMPLES = 8
"""Samples per update up to which the moment of a crash says nothing."""
MANY = 4
"""Placebos from which on it tells how many of them put the crash off."""
SAMPLES = ("shuffle", "replace_samples", "show_samples")
"""What changes the samples and nothing else."""


def control(facts: Facts) -> Answer:
    """Is every unchanged replay equal to the run, up to the same crash?"""
    keys = keys_of(facts.controls)
    onset, detected = facts.divergence.onset, facts.divergence.detected
    if not facts.controls:
        return Answer(yes=None, detail="no unchanged replay was run")
    for record in facts.controls:
        start = f"the unchanged replay from step {record.spec.from_step}"
        if record.mismatch is not None and record.mismatch <= onset:
            return Answer(
                yes=False,
                detail=f"{start} first differs at step {record.mismatch}, in "
                f"{record.mismatch_field}{_tensor(record)}, before the onset at step {onset}",
                trials=keys,
            )
        if facts.divergence.detector == NOTHING:
            continue
        crashed = record.divergence
        if crashed is None and record.last_step < detected:
            # It showed nothing: neither that the crash comes back nor that it stays away.
            why = record.note or "no reason was recorded"
            detail = f"{start} could not be run to step {detected}: {why}"
            return Answer(yes=None, detail=detail, trials=keys)
        if crashed is None or crashed.detected != detected:
            seen = f"diverged at step {crashed.detected}" if crashed else "stayed stable"
            return Answer(
                yes=False,
                detail=f"{start} {seen}; the run diverged at step {detected}{_where(record)}",
                trials=keys,
            )
    starts = " and ".join(str(record.spec.from_step) for record in facts.controls)
    late = [record.mismatch for record in facts.controls if record.mismatch is not None]
    if facts.divergence.detector == NOTHING:
        return Answer(
            yes=True, detail=f"replayed from step {starts}: every figure is equal", trials=keys
        )
    equal = f"step {min(late) - 1}, past the onset at step {onset}" if late else "the divergence"
    return Answer(
        yes=True,
        detail=f"replayed from step {starts}: every loss, norm and parameter digest is equal bit "
        f"for bit up to {equal}; it diverged at step {detected} again",
        trials=keys,
    )


def placebo(facts: Facts) -> Answer:
    """Does a change too small to be a remedy cure?

    Another order of the same data is asked about apart: it also "cures" what single samples cause.
    """
    return _null(facts, [r for r in facts.placebos if r.spec.variable not in SAMPLES])


def order(facts: Facts) -> Answer:
    """Do other samples in the same steps cure, though none of those replaced is to blame?

    Or do changes that should not matter put the crash off, again and again: then its moment is
    chance, and so is every cure.
    """
    if long_tail(facts):
        why = "with a long tail in the data every other order is another draw"
        return Answer(yes=False, detail=why)
    answer = _null(facts, [r for r in facts.placebos if r.spec.variable in SAMPLES])
    late = [record for record in facts.placebos if record.outcome == "delayed"]
    # With so few samples per update every crash comes at a moment of chance.
    few = facts.setup.batch_size <= FEW_SAMPLES or len(facts.placebos) < MANY
    rate = any(record.spec.variable == "learning_rate" for record in late)
    if answer.yes or few or not rate or 2 * len(late) < len(facts.placebos):
        return answer
    names = ", ".join(changed(record) for record in late)
    detail = f"{len(late)} of {len(facts.placebos)} changes too small to matter put it off: {names}"
    return Answer(yes=True, detail=detail, trials=keys_of(late))


def _null(facts: Facts, placebos: Sequence[TrialRecord]) -> Answer:
    cured = [record for record in placebos if _survived(record, facts)]
    if cured:
        names = ", ".join(changed(record) for record in cured)
        return Answer(yes=True, detail=f"{names} made the crash go away too", trials=keys_of(cured))
    done = [record for record in placebos if record.outcome != "inconclusive"]
    names = ", ".join(f"{changed(record)} {record.outcome}" for record in done)
    return Answer(
        yes=False,
        detail=f"none cures: {names}" if done else "no placebo could be run",
        trials=keys_of(placebos),
        tried=bool(done),
    )


def _survived(record: TrialRecord, facts: Facts) -> bool:
    """Return whether a placebo stayed stable and is still better than guessing.

    Of a remedy it is asked that the run learns on as it did; of a placebo only that the crash
    stayed away, for then its moment was chance. A network that collapsed to guessing is no proof.
    """
    if record.outcome == "stalled" and facts.setup.trivial_loss is not None:
        return record.end_loss < BETTER * facts.setup.trivial_loss
    return record.outcome == "cured"


def stands_out(facts: Facts) -> bool:
    """Return whether the crash may hang on samples: it came at once, or another order delays it."""
    crash = facts.divergence
    shuffled = [r for r in facts.placebos if r.spec.variable == "shuffle"]
    gradual = crash.pattern in {"exponential_growth", "oscillating_divergence"}
    burst = struck(facts)
    return not gradual or burst or any(record.outcome != "diverged" for record in shuffled)


def differs(record: TrialRecord, crash: Divergence) -> bool:
    """Return whether an unchanged replay is known to have taken another course than the run."""
    if record.mismatch is None:
        return False
    found = record.divergence
    return record.mismatch <= crash.onset or found is None or found.detected != crash.detected


def _where(record: TrialRecord) -> str:
    if record.mismatch is None:
        return ""
    place = f"{record.mismatch_field}{_tensor(record)}"
    return f"; they first differ at step {record.mismatch}, in {place}"


def _tensor(record: TrialRecord) -> str:
    return f" ({record.mismatch_tensor})" if record.mismatch_tensor else ""
