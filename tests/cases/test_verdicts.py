"""Every re-created public failure gets the right verdict, and none is blamed on a setting."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases.expected import CASES, VARIANTS

import stabexp
from stabexp.records import VARIABLES

FOLDER = Path(__file__).parents[2] / "experiments" / "cases"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("nowhere", "no_uploader_left"),
    # What the cases provoke on purpose, torch also warns about.
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def verdict_on(file, root, *, detected):
    run = stabexp.run(file, root=root, drain_seconds=0)
    assert (run.divergence is None) == (detected is None)
    if run.divergence is None:
        return stabexp.check(run.run_id, root=root, drain_seconds=0)
    # The last bits of a sum differ between machines, and with them a slow growth.
    assert run.divergence.detected == pytest.approx(detected, abs=2, rel=0.2)
    return stabexp.bisect(run.run_id, root=root, workers=0, drain_seconds=0)


EACH = [
    pytest.param(folder / f"{name}.yaml", known, id=name)
    for folder, table in ((FOLDER, CASES), (FOLDER / "variants", VARIANTS))
    for name, known in table.items()
]


@pytest.mark.parametrize(("file", "known"), EACH)
def test_the_verdict_is_the_known_cause_and_names_what_is_at_fault(file, known, tmp_path):
    verdict = verdict_on(file, tmp_path, detected=known.detected[0])
    assert verdict.cause in known.causes, verdict.summary
    culprit = verdict.culprit
    wanted = {known.rule, known.operation, known.parameter} - {""}
    if verdict.cause in VARIABLES or verdict.cause == "overfitting" or not wanted:
        return
    assert culprit is not None
    named = f"{culprit.kind} {culprit.place} {culprit.detail}"
    samples = known.samples is not None and set(culprit.samples) == set(known.samples[0])
    assert samples or any(word in named for word in wanted), named
