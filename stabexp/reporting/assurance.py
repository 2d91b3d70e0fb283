"""What was done so that no accident is taken for an answer: control, placebos, reversal, proof.

A bisect of a training is an experiment, and these are its controls. Each is shown by itself, with
the diverged run behind it, because among forty other curves nobody sees what they say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stabexp.records import Evidence, Role, StepRecord, TrialRecord
from stabexp.reporting import words
from stabexp.reporting.chart import Marker, line_chart
from stabexp.reporting.figures import run_curve, trial_curve
from stabexp.reporting.report import Report

SHOWN = 12
"""Trials of one kind that are shown by themselves, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One kind of check."""

    name: str
    why: str
    """What it rules out, in a sentence."""
    answer: str
    """What came of it, in a sentence."""
    trials: tuple[TrialRecord, ...]
    more: int
    """Trials that are not shown."""
    chart: str
    """The loss of these trials as SVG, empty where nothing was replayed."""


_KINDS: tuple[tuple[Role, str, str], ...] = (
    (
        "control",
        "Control: nothing changed",
        "If the unchanged training did not crash again, every “cure” could be luck.",
    ),
    (
        "placebo",
        "Placebo: next to nothing changed",
        "If this cured too, the crash would be a matter of chance, and no cure would mean much.",
    ),
    (
        "data",
        "Other samples in their place",
        "Suspected samples are replaced; for comparison as many innocent ones are, too.",
    ),
    (
        "test",
        "A suspect switched off",
        "Only the suspected mechanism is taken away; everything else stays as it was.",
    ),
    (
        "reversal",
        "Reversal: the old value put back",
        "A cured training gets its old value back. If that is the cause, the crash must return.",
    ),
    (
        "proof",
        "Proof: the fix goes on",
        "The training with the fix must pass the horizon, go on, and learn.",
    ),
)


def assurance(report: Report) -> list[Check]:
    """Return the checks that were made, in the order of an experiment."""
    by_role: dict[str, list[TrialRecord]] = {}
    for record in words.ordered(report.trials):
        by_role.setdefault(record.spec.role, []).append(record)
    steps = {node.node: node for node in report.verdict.path}
    found = []
    for role, name, why in _KINDS:
        records = by_role.get(role, [])
        node = steps.get(role)
        if not records and (node is None or role not in {"reversal", "proof"}):
            continue
        shown = records[:SHOWN]
        found.append(
            Check(
                name=name,
                why=why,
                answer=_answer(role, records, node),
                trials=tuple(shown),
                more=len(records) - len(shown),
                chart=_chart(role, name, shown, report),
            )
        )
    return found


def _answer(role: Role, records: Sequence[TrialRecord], node: Evidence | None) -> str:
    if role == "control":
        return _control(records)
    if role == "placebo":
        cured = sum(record.outcome == "cured" for record in records)
        if not cured:
            return "None cures." if len(records) > 1 else "It does not cure."
        return f"{cured} of {len(records)} cured all the same."
    if role in {"reversal", "proof"} and node is not None:
        return f"{node.answer.capitalize()}: {words.one_line(node.detail).rstrip('.')}."
    counts: dict[str, int] = {}
    for record in records:
        counts[record.outcome] = counts.get(record.outcome, 0) + 1
    return f"{', '.join(f'{number} {outcome}' for outcome, number in counts.items())}.".capitalize()


def _control(records: Sequence[TrialRecord]) -> str:
    judged = [record for record in records if record.outcome != "inconclusive"]
    if not judged:
        return "It could not be judged."
    differ = [record for record in judged if record.mismatch is not None]
    if differ:
        first = differ[0]
        what = f" ({words.one_line(first.mismatch_field)})" if first.mismatch_field else ""
        tensor = f" in {words.one_line(first.mismatch_tensor)}" if first.mismatch_tensor else ""
        return f"It differs from the run, first at step {first.mismatch:,}{what}{tensor}."
    again = [record.divergence.detected for record in judged if record.divergence is not None]
    fell = f", and it crashed again at step {again[0]:,}" if again else ""
    return (
        f"Every loss, gradient norm and parameter digest was equal to the run’s, bit for bit{fell}."
    )


def _chart(role: Role, name: str, records: Sequence[TrialRecord], report: Report) -> str:
    drawn = [record for record in records if report.trial_steps.get(record.spec.key)]
    if not drawn:
        return ""
    spans = [_span(report.trial_steps, record) for record in drawn]
    good, found = report.verdict.good_step, report.verdict.divergence
    first = min([good, *(begin for begin, _ in spans)])
    last = max([found.detected, *(end for _, end in spans)])
    markers = [Marker(step=found.onset, label="onset", kind="onset")]
    if role == "reversal":
        markers.append(Marker(step=spans[0][0], label="put back", kind="good"))
    shown = (first, last + 1)
    curves = [
        run_curve(report.steps, "loss", shown),
        *(trial_curve(r, report.trial_steps[r.spec.key], "loss", shown) for r in drawn),
    ]
    return line_chart(
        curves,
        name=f"sure-{role}",
        title=f"{name}: loss",
        description=f"Loss per step, steps {first:,} to {last:,}, of the diverged run and of "
        f"{', '.join(words.label(record) for record in drawn)}.",
        y_label="loss",
        markers=markers if found.detector != "none" else (),
        steps=shown,
        width=380,
        height=230,
        most_points=160,
    )


def _span(trial_steps: Mapping[str, Sequence[StepRecord]], record: TrialRecord) -> tuple[int, int]:
    steps = trial_steps[record.spec.key]
    return min(step.step for step in steps), max(step.step for step in steps)
