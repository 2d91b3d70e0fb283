"""What people get wrong is found before training, and nothing else is told beside it."""

from __future__ import annotations

import pytest

import stabexp
from experiments.preflight.setups import CLEAN, FURTHER_PLANTED, PLANTED, Setup
from stabexp.preflight.reasons import WHY

QUICK = (
    "digits: bytes",
    "digits: nan pixels",
    "digits: labels from one",
    "digits: head replaced",
    "digits: step twice",
    "digits: update before backward",
    "digits: clip after the update",
    "digits: evaluation mode",
    "digits: clip before unscale",
    "digits: steps of epochs",
    "digits: warm-up too long",
    "pictures: channels reshaped",
    "pictures: grows",
    "tables: column against row",
    "text: cut",
)
"""One of each kind; all of them are scored by experiments.preflight."""

SILENT = (
    "classifier, float16 autocast",
    "coloured pictures, convolutions",
    "table, regression",
    "padded text, transformer",
    "plain loop",
)


def examined(setup: Setup) -> stabexp.Preflight:
    arguments = {"args": dict(setup.args)} if setup.args else {}
    return stabexp.check_setup(setup.function, threads=1, **arguments)


@pytest.mark.parametrize("title", QUICK)
def test_a_planted_mistake_is_told_and_nothing_else(title):
    setup = next(each for each in PLANTED if each.title == title)
    found = examined(setup)
    assert [finding.name for finding in found.findings] == [setup.finding]
    told = found.findings[0]
    assert all((told.where, told.what, told.why, told.change))
    assert found.unexamined == ()


@pytest.mark.parametrize("title", SILENT)
def test_a_clean_training_is_passed_in_silence(title):
    found = examined(next(each for each in CLEAN if each.title == title))
    assert found.findings == ()
    assert (found.updates, found.unexamined) == (8, ())


def test_of_networks_against_each_other_it_is_said_what_was_not_looked_at():
    found = examined(next(each for each in FURTHER_PLANTED if "sigmoid" in each.title))
    assert [finding.name for finding in found.findings] == ["double_softmax"]
    assert found.unexamined == (
        "the order of an update: several optimizers step against each other",
    )


def test_every_planted_mistake_deserves_a_finding_that_says_why():
    assert {each.finding for each in PLANTED} <= set(WHY)
    assert len({each.title for each in (*PLANTED, *CLEAN)}) == len(PLANTED) + len(CLEAN)
