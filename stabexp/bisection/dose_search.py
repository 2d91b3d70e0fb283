"""Searches the doses of all variables, taking turns, so that every worker is busy.

Within a ladder the next dose depends on the last answer, so ladders run side by side rather than
the doses of one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stabexp.bisection.ladder import Ladder
from stabexp.bisection.optuna_study import DoseStudies, Question
from stabexp.bisection.search import LadderAnswer
from stabexp.bisection.trials import TrialRunner
from stabexp.records import Outcome, TrialRecord, TrialSpec

Searched = dict[str, tuple[LadderAnswer | None, tuple[TrialRecord, ...]]]
"""Variable → its answer, None when the budget ran out first, and its trials."""


def search_doses(
    ladders: Sequence[Ladder],
    *,
    studies: DoseStudies,
    runner: TrialRunner,
    spec_of: Callable[[Ladder, int], TrialSpec],
    spent: Callable[[], bool],
    outcome_of: Callable[[TrialRecord], Outcome] = lambda record: record.outcome,
) -> Searched:
    """Ask and run until every ladder is decided or the budget is spent.

    Args:
        ladders: What to search.
        studies: Where the questions come from and the answers go.
        runner: Runs the trials.
        spec_of: The trial for a ladder's dose, by index.
        spent: Whether no further trial may start.
        outcome_of: What a trial counts as.
    """
    asked: dict[str, Question] = {}
    while True:
        for ladder in ladders:
            waiting = any(question.ladder == ladder for question in asked.values())
            question = None if waiting or spent() else studies.ask(ladder)
            if question is not None:
                spec = spec_of(ladder, question.index)
                asked[spec.key] = question
                runner.submit(spec)
        if not asked:
            break
        record = runner.wait()
        studies.tell(
            asked.pop(record.spec.key),
            outcome_of(record),
            attributes={"trial": record.spec.key, "note": record.note},
        )
    return {ladder.variable: _answer(ladder, studies, runner) for ladder in ladders}


def _answer(
    ladder: Ladder, studies: DoseStudies, runner: TrialRunner
) -> tuple[LadderAnswer | None, tuple[TrialRecord, ...]]:
    keys = [str(attributes["trial"]) for attributes in studies.finished(ladder).values()]
    return studies.answer(ladder), tuple(runner.recall(key) for key in keys)
