from __future__ import annotations

from dataclasses import replace

import pytest

from stabexp.reporting.assurance import SHOWN, assurance


def told(report):
    return {check.name.partition(":")[0]: check for check in assurance(report)}


def test_each_kind_of_check_is_told_once_in_the_order_of_an_experiment(cases):
    assert list(told(cases["setting"]())) == ["Control", "Placebo", "Reversal", "Proof"]


def test_a_control_that_is_equal_says_so_and_where_it_crashed_again(cases):
    answer = told(cases["setting"]())["Control"].answer
    assert answer.endswith("bit for bit, and it crashed again at step 141.")


def test_a_control_that_differs_says_where_it_does_first(cases):
    answer = told(cases["not_reproduced"]())["Control"].answer
    assert answer == "It differs from the run, first at step 124 (loss) in head.weight."


def test_placebos_that_cure_are_counted(cases):
    report = cases["setting"]()
    assert told(report)["Placebo"].answer == "None cures."
    cured = [
        replace(record, outcome="cured") if record.number == 2 else record
        for record in report.trials
    ]
    assert told(replace(report, trials=cured))["Placebo"].answer == "1 of 2 cured all the same."


def test_a_proof_is_drawn_to_its_end_with_the_run_behind_it(cases):
    chart = told(cases["setting"]())["Proof"].chart
    assert "steps 0 to 398" in chart
    assert 'class="curve run"' in chart
    assert 'class="curve cured"' in chart


def test_a_reversal_that_could_not_be_tried_says_why(cases):
    report = cases["setting"]()
    path = tuple(
        replace(node, answer="not tried", detail="the budget ran out", trials=())
        if node.node == "reversal"
        else node
        for node in report.verdict.path
    )
    without = [record for record in report.trials if record.spec.role != "reversal"]
    check = told(replace(report, trials=without, verdict=replace(report.verdict, path=path)))
    assert check["Reversal"].answer == "Not tried: the budget ran out."
    assert check["Reversal"].chart == ""


@pytest.mark.parametrize("count", [1, 30])
def test_of_many_trials_of_one_kind_some_are_shown_and_the_rest_counted(cases, count):
    report = cases["setting"]()
    placebo = report.trials[1]
    many = [
        replace(placebo, number=at, spec=replace(placebo.spec, until_step=200 + at))
        for at in range(count)
    ]
    check = told(replace(report, trials=many))["Placebo"]
    assert len(check.trials) == min(count, SHOWN)
    assert check.more == max(0, count - SHOWN)


def test_nothing_is_told_where_nothing_was_tried(cases):
    assert assurance(cases["silent"]()) == []
