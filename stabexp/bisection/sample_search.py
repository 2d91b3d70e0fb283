"""Runs the search among the samples: a scan of each alone, then replays without some of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stabexp.bisection.data_case import (
    FEW,
    DataAnswer,
    DataDecision,
    DataQuestion,
    DataTable,
    answer_of,
    deviations,
    flagged,
    most_replays,
    scores_of,
    whole_batches,
)
from stabexp.bisection.data_search import decision, next_question
from stabexp.bisection.facts import DataFacts
from stabexp.bisection.plan import HORIZON_LEAST, Plan
from stabexp.bisection.sample_look import SampleFigures, look
from stabexp.bisection.trials import TrialRunner
from stabexp.interventions.show_samples import write_batches
from stabexp.records import Change, Role, StepRecord, TrialRecord, TrialSpec, from_json

SCANNED = 512
"""Most samples that a scan shows, those nearest to the onset first."""
BEFORE = 3
"""Steps before the onset in which the culprit can have been shown."""
NEIGHBOURS = 16
"""Samples that the culprits are compared with."""
SPARE = 4
"""Replays beyond those that one to three culprits take, before the search is given up."""


def search_samples(  # noqa: PLR0911
    plan: Plan,
    runner: TrialRunner,
    records: Sequence[StepRecord],
    *,
    dataset_size: int,
    repeats: int = 1,
    heavy_tailed: bool,
    sharp: bool,
    spent: Callable[[], bool],
) -> tuple[DataFacts, tuple[TrialRecord, ...]]:
    """Return which samples the crash hangs on, and the replays that say so.

    Args:
        plan: Where replays start and end.
        runner: Runs them.
        records: The diverged run's steps.
        dataset_size: Samples in one pass.
        repeats: Micro-batches of an update.
        heavy_tailed: Whether gradients are out of proportion now and then and nothing clips them.
            Then a few samples, or whole batches, count only if they stand apart from all others: of
            a long tail, the next one throws the run over when the first is taken away.
        sharp: Whether the crash came in one step. A crash that took its time moves with every
            change of the data, so there only what stands out is asked about.
        spent: Whether no further trial may start.
    """
    crash = plan.divergence
    window = [r for r in records if plan.good_step <= r.step <= crash.detected]
    control = DataAnswer(
        outcome="diverged",
        onset=crash.onset,
        detected=crash.detected,
        shown={r.step: r.sample_ids for r in window},
    )
    made: list[TrialRecord] = []
    if not any(record.sample_ids for record in window):
        return _none(made, "the run has no record of its samples"), ()
    (scanned,) = runner.run([scan(plan, window, repeats=repeats)])
    if not runner.steps_of(scanned):  # a network that needs statistics over a batch
        made.append(scanned)
        (scanned,) = runner.run([scan(plan, window, partners=True, repeats=repeats)])
    made.append(scanned)
    before = len(made)
    # A scan takes more steps than the run may have; where code that counts them fails half-way,
    # the samples nearest to the onset have been shown.
    scores = scores_of(runner.steps_of(scanned))
    z = deviations(scores)
    whole = whole_batches(z, control.shown)
    apart = whole or flagged(z)
    near = {i for r in window if r.step >= crash.onset - BEFORE for i in r.sample_ids}
    if not near.intersection(apart):
        # A sample that throws a run over stands out when it is shown alone. Where none does, the
        # crash moves with every change of the data, and a search would only find chance.
        return _none(made, "no sample near the crash stands out when it is shown alone"), tuple(
            made
        )
    if heavy_tailed and len(apart) > FEW and not whole:
        why = f"{len(apart)} samples stand out from the others and nothing clips their gradients"
        return _none(made, why), tuple(made)
    limit = most_replays(len(window), max(len(r.sample_ids) for r in window)) + SPARE
    answers: dict[DataQuestion, DataAnswer] = {}
    while not spent():
        table = DataTable(
            control=control,
            dataset_size=dataset_size,
            answers=answers,
            scan=scores,
            other_state=True,
        )
        question = next_question(table)
        if question is None:
            return _facts(decision(table), made, made[before:], answers), tuple(made)
        cured = _cured(question, answers, made[before:])
        if len(answers) >= limit or (question.show and cured is None):
            return _facts(decision(table), made, made[before:], answers), tuple(made)
        (record,) = runner.run([_spec(question, plan, cured)])
        made.append(record)
        answers[question] = answer_of(record, runner.steps_of(record))
        missed = question.kind == "flagged" and answers[question].outcome == "diverged"
        if missed and (heavy_tailed or not sharp):
            why = f"without the {len(apart)} samples that stand out it crashes on others"
            return _none(made, why), tuple(made)
    facts = DataFacts(
        verdict="undecided",
        why="the budget ran out during the search among the samples",
        trials=tuple(record.spec.key for record in made),
    )
    return facts, tuple(made)


def scan(
    plan: Plan, window: Sequence[StepRecord], *, partners: bool = False, repeats: int = 1
) -> TrialSpec:
    """Return the replay that shows the window's samples one by one, without any update.

    With `partners`, each comes with another sample of the window. A loop that accumulates
    `repeats` micro-batches into a step is shown the same one as often.
    """
    onset = plan.divergence.onset
    near = sorted(window, key=lambda r: (abs(r.step - onset), r.step))
    ids = list(dict.fromkeys(i for record in near for i in record.sample_ids))[:SCANNED]
    batches = tuple((one, ids[n - 1]) if partners else (one,) for n, one in enumerate(ids))
    return TrialSpec(
        role="scan",
        changes=(
            Change(
                variable="frozen_scan",
                dose=write_batches(tuple(b for b in batches for _ in range(repeats))),
            ),
        ),
        from_step=plan.good_step,
        until_step=plan.good_step + len(batches),
        reason="which samples stand out to this state?",
    )


def _none(made: Sequence[TrialRecord], why: str) -> DataFacts:
    keys = tuple(record.spec.key for record in made)
    return DataFacts(verdict="not_data", why=why, trials=keys)


def _cured(
    question: DataQuestion,
    answers: dict[DataQuestion, DataAnswer],
    asked: Sequence[TrialRecord],
) -> TrialRecord | None:
    """Return a replay that trained through without the samples that are now to be shown."""
    for earlier, record in zip(answers, asked, strict=True):
        cured = answers[earlier].outcome == "cured" and not earlier.show
        if cured and earlier.kind != "placebo" and question.replace <= earlier.replace:
            return record
    return None


def _spec(question: DataQuestion, plan: Plan, cured: TrialRecord | None) -> TrialSpec:
    """Return the replay that answers a question.

    Another state is that at the end of a replay that trained through without the samples: an
    earlier checkpoint would not do, because a network that has learned little shrugs off much.
    """
    changes = []
    if question.replace:
        dose = ",".join(str(i) for i in sorted(question.replace))
        changes.append(Change(variable="replace_samples", dose=dose))
    reason = question.reason or f"does it crash without {len(question.replace)} samples?"
    if not question.show:
        role: Role = "placebo" if question.kind == "placebo" else "data"
        return plan.changed(role, tuple(changes), from_step=plan.good_step, reason=reason)
    assert cured is not None
    changes.append(Change(variable="show_samples", dose=write_batches(question.show)))
    start = cured.spec.until_step
    return TrialSpec(
        role="data",
        changes=tuple(changes),
        from_step=start,
        until_step=start + HORIZON_LEAST,
        from_trial=cured.spec.key,
        reason=reason,
    )


def _facts(
    found: DataDecision,
    made: Sequence[TrialRecord],
    asked: Sequence[TrialRecord],
    answers: dict[DataQuestion, DataAnswer],
) -> DataFacts:
    exactly = frozenset(found.samples)
    keys = {question: record.spec.key for question, record in zip(answers, asked, strict=True)}
    cure = next(
        (
            key
            for question, key in keys.items()
            if question.replace == exactly
            and not question.show
            and answers[question].outcome == "cured"
        ),
        "",
    )
    verdict = "hard_batch" if found.verdict == "hard_batch_fragile_state" else found.verdict
    return DataFacts(
        verdict=verdict,
        why=found.why,
        samples=found.samples,
        exact=found.exact,
        trials=tuple(record.spec.key for record in made),
        cure=cure,
        looks=_looks(found, made),
    )


def _looks(found: DataDecision, made: Sequence[TrialRecord]) -> tuple[str, ...]:
    """Return what the culprits look like next to their neighbours, one sentence each."""
    listed = next((r.findings["figures"] for r in made if "figures" in r.findings), ())
    known = [from_json(SampleFigures, item) for item in listed]
    culprits = [item for item in known if item.id in found.samples]
    neighbours = [item for item in known if item.id not in found.samples][:NEIGHBOURS]
    return look(culprits, neighbours) if culprits and neighbours else ()
