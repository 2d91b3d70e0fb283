"""The tables are complete, and every command they give can be typed."""

from __future__ import annotations

import shlex
from typing import get_args

import pytest
import typer

from stabexp.bisection.decision_tree import TREE
from stabexp.cli import app
from stabexp.detectors import build
from stabexp.diagnosis.judging import first_finding
from stabexp.findings import CAUSES, CHECKS, TAXONOMY, Symptom, questions_of
from stabexp.findings.symptoms import GRAVITY

TEXTS = [(name, command) for name, step in CHECKS.items() for command in
         filter(None, (step.command, step.after_a_crash))]  # fmt: skip


def test_every_symptom_has_a_row_whose_causes_and_checks_exist():
    assert set(TAXONOMY) == set(get_args(Symptom)) == set(GRAVITY)
    for row in TAXONOMY.values():
        assert set(row.causes) <= set(CAUSES)
        assert set(row.priority) <= set(CHECKS)
        assert len(row.priority) == 3


@pytest.mark.parametrize(
    ("symptom", "order"),
    [
        ("not_decreasing", ("rate range", "data loading", "architecture")),
        ("oscillating", ("batch size", "schedule", "clip")),
        ("overfitting", ("regularisation", "augmentation", "capacity")),
        ("non_finite", ("numeric stability", "loss", "precision")),
    ],
)
def test_the_priority_matrix_is_the_documents(symptom, order):
    assert TAXONOMY[symptom].priority == order


@pytest.mark.parametrize(("name", "command"), TEXTS)
def test_a_check_is_a_command_that_exists_with_options_that_exist(name, command):
    program, verb, *arguments = shlex.split(command.format(run="RUN_ID", clip="4.8"))
    assert program == "stabexp"
    found = typer.main.get_command(app).commands[verb]
    found.make_context(verb, arguments)


def test_the_careful_questions_are_answered_and_each_leads_to_a_node_of_the_tree():
    from detectors.conftest import make

    records = make(*([2.3] * 60), *([900.0] * 8), grad_norms=[*([1.0] * 60), *([400.0] * 8)])
    divergence = first_finding(build({}), records, first_step=0)
    found = questions_of(
        records, divergence, {"precision": "fp16", "steps": 400}, checkpoint=50, run="r"
    )
    assert [item.answer for item in found] == ["no", "yes", "yes", "yes"]
    assert {node for item in found for node in item.nodes} <= set(TREE)
    assert found[-1].advice.endswith("stabexp recover r")
    without = questions_of(records, divergence, {}, checkpoint=None)
    assert [item.answer for item in without] == ["yes", "unknown", "yes", "no"]
