from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

from stabexp.reporting.loss_picture import deciding, loss_picture

SVG = "{http://www.w3.org/2000/svg}"


def curves(text: str) -> list[str]:
    root = ElementTree.fromstring(text)
    return [
        group.get("class").split()[1]
        for group in root.iter(f"{SVG}g")
        if (group.get("class") or "").startswith("curve")
    ]


def test_the_run_its_fix_and_its_undoing_are_drawn_and_named(bisect):
    text = loss_picture(bisect.report())
    assert curves(text) == ["run", "diverged", "cured"]
    assert "14: original value back, diverged · 15: the fix, cured" in text


def test_without_a_proof_the_cure_is_drawn(bisect):
    trials = [record for record in bisect.trials if record.spec.role != "proof"]
    names = [name for name, _ in deciding(bisect.verdict, trials)]
    assert names == ["learning_rate ×0.25", "original value back"]


def test_the_trial_that_the_fix_goes_on_from_is_drawn_too(bisect):
    cured = next(record for record in bisect.trials if record.name == "03 dose")
    trials = [
        replace(record, spec=replace(record.spec, from_step=200, from_trial=cured.spec.key))
        if record.spec.role == "proof"
        else record
        for record in bisect.trials
    ]
    drawn = [record for _, record in deciding(replace(bisect.verdict, cures=()), trials)]
    assert cured in drawn


def test_without_a_cause_the_trials_that_the_walk_cites_are_drawn(bisect):
    verdict = replace(bisect.verdict, cause="inconclusive", cures=())
    trials = [r for r in bisect.trials if r.spec.role not in {"proof", "reversal"}]
    assert [name for name, _ in deciding(verdict, trials)][:2] == [
        "unchanged replay",
        "learning_rate ×0.97",
    ]


def test_it_is_a_file_of_its_own_also_with_hostile_text(hostile):
    text = loss_picture(hostile.report())
    ElementTree.fromstring(text)
    assert "<script" not in text
