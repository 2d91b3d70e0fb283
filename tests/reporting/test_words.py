from __future__ import annotations

import math
from dataclasses import replace

import pytest
import yaml

from stabexp.records import Culprit, Hypothesis
from stabexp.reporting import words
from stabexp.reporting.links import safe_link
from stabexp.reporting.patch import patch_yaml


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.0, "2"),
        (20_000.0, "20,000"),
        (0.30004, "0.3"),
        (3e-05, "3e-5"),
        (1.2341e30, "1.234e30"),
        (math.nan, "NaN"),
        (-math.inf, "-Inf"),
        (0.0, "0"),
    ],
)
def test_figures_read_as(value, text):
    assert words.figure(value) == text


@pytest.mark.parametrize(
    ("variable", "dose", "text"),
    [
        ("learning_rate", 0.25, "×0.25"),
        ("batch_size", 4, "×4"),
        ("warmup", 1, "1 step"),
        ("warmup", 25, "25 steps"),
        ("clip_norm", 0.37, "0.37"),
        ("precision", "fp32", "fp32"),
        ("shuffle", 2, "order 2"),
        ("something", 2, "2"),
        ("learning_rate", None, "none"),
    ],
)
def test_doses_read_as(variable, dose, text):
    assert words.dose(variable, dose) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.84, "0.8 s"), (41.3, "41 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")],
)
def test_durations_read_as(seconds, text):
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    ("variable", "doses"),
    [
        ("learning_rate", [0.7, 0.5, 0.1, 0.001]),
        ("clip_norm", [4.0, 1.0, 0.25]),
        ("batch_size", [2, 4, 16]),
        ("warmup", [10, 25, 50]),
        ("precision", ["fp16_unscaled", "fp16", "bf16", "fp32", "a custom one"]),
    ],
)
def test_doses_sort_from_mild_to_strong(variable, doses):
    assert sorted({*doses}, key=lambda dose: words.strength(variable, dose)) == doses


def test_a_confidence_says_what_its_number_means():
    assert words.confidence(0.93) == (
        "0.93 (of verdicts with this evidence, about 93 in 100 are right)"
    )
    assert words.confidence(math.nan) == "not stated"


def test_a_finding_gives_the_figures(bisect):
    by_role = {record.spec.role: words.finding(record) for record in bisect.trials}
    assert (
        by_role["control"] == "Diverged from step 133, 13 steps on. Bit for bit equal to the run."
    )
    assert by_role["proof"] == "Stable to step 398 and still learning: loss 2.214 → 1.936."


def test_ladders_hold_single_doses_only(bisect):
    found = words.ladders(bisect.trials)
    assert list(found) == ["learning_rate", "warmup", "clip_norm", "precision", "batch_size"]
    assert [record.spec.dose for record in found["learning_rate"]] == [0.5, 0.25, 0.1, 0.001]


def test_control_characters_and_direction_overrides_are_replaced():
    assert words.clean("a\x1b[31m\u202eb\x00\n\t学") == "a�[31m�b�\n\t学"


@pytest.mark.parametrize(
    ("address", "kept"),
    [
        ("http://localhost:5000/#/experiments/1", True),
        ("HTTPS://example.org/a", True),
        ("#/experiments/1/runs/2", True),
        ("report/page.html", True),
        ("javascript:alert(1)", False),
        ("java\nscript:alert(1)", False),
        ("data:text/html,x", False),
        ("\x01javascript:alert(1)", True),
        ("", False),
    ],
)
def test_links_lead_to_pages_only(address, kept):
    assert bool(safe_link(address)) == kept


def test_a_fix_is_yaml_that_reads_back_with_the_old_values_beside_it(experiment):
    text = patch_yaml(
        {"optimizer.lr": 3e-5, "clip_norm": 1.0, "schedule.warmup": 50, "data.seed": 1}, experiment
    )
    assert text.splitlines() == [
        "optimizer:",
        "  lr: 3.0e-05  # was 3e-2",
        "clip_norm: 1.0  # was null",
        "schedule:  # was null",
        "  warmup: 50  # was not set",
        "data:",
        "  seed: 1  # was not set",
    ]
    assert yaml.safe_load(text)["optimizer"] == {"lr": 3e-5}


def test_a_fix_inside_a_section_given_by_its_name_keeps_the_name():
    text = patch_yaml({"schedule.warmup": 50}, "schedule: cosine")
    assert yaml.safe_load(text) == {"schedule": {"name": "cosine", "warmup": 50}}


@pytest.mark.parametrize("experiment", ["", "a: [", "- not\n- a mapping"])
def test_a_fix_needs_no_readable_experiment(experiment):
    assert patch_yaml({"optimizer.lr": 0.1}, experiment) == "optimizer:\n  lr: 0.1"


@pytest.mark.parametrize("value", ["# no comment", "a: b", "on", "3e-4", "两\n行", None, [1, "x"]])
def test_any_value_survives_the_patch(value):
    assert yaml.safe_load(patch_yaml({"a.b": value, "c": 1}, "a: {z: 1}")) == {
        "a": {"b": value},
        "c": 1,
    }


def test_proof_is_claimed_only_when_there_was_one(bisect):
    assert words.proof(bisect.verdict).startswith("Proved")
    assert words.proof(replace(bisect.verdict, fix_proved=False)).startswith("Not proved")
    assert words.proof(replace(bisect.verdict, fix={})) == "There is no fix to offer."


CULPRIT = Culprit(
    kind="log_of_zero",
    place="log at train.py:31, in head, forward",
    detail="log of 0 is -inf",
    remedy="clamp before the log.",
    code="loss = -p.log()",
    samples=(80, 81),
)


def test_what_cannot_be_set_is_said_to_be_mended_and_whether_that_was_tried(bisect):
    verdict = replace(bisect.verdict, fix={}, culprit=CULPRIT)
    assert words.proof(replace(verdict, fix_proved=False)) == "To mend: clamp before the log."
    assert words.proof(verdict).endswith("With only that taken away the run trained through.")


def test_a_culprit_is_told_with_its_place_line_figures_and_samples(bisect):
    assert words.culprit(bisect.verdict) == []
    assert words.culprit(replace(bisect.verdict, culprit=CULPRIT)) == [
        ("Where", "log at train.py:31, in head, forward"),
        ("Line", "loss = -p.log()"),
        ("What", "log of 0 is -inf"),
        ("Samples", "80, 81"),
    ]


def test_what_is_still_possible_and_where_the_fix_still_works_are_told(bisect):
    assert words.possible(bisect.verdict) == []
    guesses = (Hypothesis(cause="data", why="the state was fragile", weight=0.3),)
    assert words.possible(replace(bisect.verdict, hypotheses=guesses)) == [
        ("data", "the state was fragile")
    ]
    assert words.no_return(bisect.verdict) == ""
    assert "step 1,200 " in words.no_return(replace(bisect.verdict, point_of_no_return=1200))
