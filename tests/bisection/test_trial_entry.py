"""A trial's name, parameters and note tell what it was for, without the report."""

from __future__ import annotations

import pytest
from markdown_it import MarkdownIt

from stabexp.bisection.trial_entry import (
    trial_name,
    trial_note,
    trial_params,
    trial_result,
)
from stabexp.records import Change, TrialRecord, TrialSpec

IDS = ",".join(map(str, range(500)))


def record(role="dose", changes=(), outcome="cured", **more) -> TrialRecord:
    spec = TrialSpec(
        role=role,
        changes=tuple(Change(variable=name, dose=dose) for name, dose in changes),
        from_step=20,
        until_step=110,
        reason="does it cure?",
        patch=more.pop("patch", {}),
    )
    return TrialRecord(spec=spec, outcome=outcome, last_step=109, number=5, **more)


@pytest.mark.parametrize(
    ("trial", "name"),
    [
        (record(changes=[("learning_rate", 0.5)]), "05 learning_rate ×0.5: cured"),
        (record("control", outcome="diverged"), "05 unchanged replay: diverged"),
        (record("placebo", [("shuffle", 1)], "diverged"), "05 placebo shuffle 1: diverged"),
        (record("data", [("replace_samples", "7")]), "05 data without sample 7: cured"),
        (record("data", [("replace_samples", "7,8")]), "05 data without 2 samples: cured"),
        (record("scan", [("frozen_scan", IDS)], "inconclusive"), "05 scan of 500 samples"),
        (record("reversal", outcome="delayed"), "05 original value put back: delayed"),
        (record("proof"), "05 proof of the fix: cured"),
        (
            record(changes=[("warmup", 50), ("clip_norm", 1.0)]),
            "05 warmup 50 + clip_norm 1.0: cured",
        ),
        (record("manual", outcome="stalled"), "05 manual: stalled"),
    ],
)
def test_a_name_says_what_was_changed_and_what_came_of_it(trial, name):
    assert trial_name(5, trial) == name


def test_what_was_changed_comes_first_among_the_parameters():
    spec = record("proof", patch={"clip": 1.0}).spec
    params = trial_params(spec, {"clip": None, "steps": 9})
    assert params["settings.clip"] == 1.0
    # The compare page draws the first three that differ, in alphabetical order.
    assert sorted([*params, "outcome"])[:3] == ["changed", "dose", "outcome"]


def test_a_list_of_samples_is_counted_not_listed():
    assert trial_params(record("scan", [("frozen_scan", IDS)]).spec, {})["dose"] == "500 samples"


def test_the_finding_of_a_crash_says_how_far_it_came():
    crashed = record("control", outcome="diverged", note="the loss left its floor")
    tags = trial_result(crashed)["tags"]
    assert tags["stabexp.finding"] == "diverged after 90 steps: the loss left its floor"
    assert trial_result(record(note="loss 2 → 1"))["tags"]["stabexp.finding"] == "loss 2 → 1"


def test_a_scan_has_no_steps_that_it_survived():
    scanned = trial_result(record("scan", [("frozen_scan", IDS)], "inconclusive"))
    assert scanned["metrics"] == {"verdict/cured": 0.0}
    assert trial_result(record())["metrics"]["verdict/steps_survived"] == 90


def test_the_note_has_the_question_the_answer_and_the_way_to_the_whole():
    trial = record(changes=[("learning_rate", 0.5)], note="loss 2 → 1 <b>")
    html = MarkdownIt("commonmark").render(trial_note(trial, run_id="gpt-1", bisect_id="gpt-1.b"))
    assert "<h3>05 learning_rate ×0.5: cured</h3>" in html
    assert "Does it cure?" in html
    assert "from the checkpoint of step 20, for 90 steps" in html
    assert "Loss 2 → 1 &lt;b&gt;." in html
    assert html.count("<a href=") == 4
    assert "{mlflow.parent_id}" in html.replace("%7B", "{").replace("%7D", "}")
