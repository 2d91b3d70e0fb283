"""The benchmark counts what it says it counts."""

from __future__ import annotations

from argparse import Namespace

from experiments.recovery.__main__ import jobs
from experiments.recovery.bench import REMEDIES, Row
from experiments.recovery.page import HEADING, page


def row(fault="bad_batch", seed=2, **changed):
    usual = {
        "status": "recovered",
        "remedies": ("replace_samples",),
        "right": True,
        "rollbacks": 1,
        "clean_loss": 0.25,
        "loss": 0.254,
        "replayed": 100,
        "seconds": 3.0,
    }
    return Row(fault=fault, seed=seed, **{**usual, **changed})


def test_there_are_fourteen_kinds_of_fault_and_back_means_at_most_two_per_cent_above():
    assert len(REMEDIES) == 14
    assert row().came_back
    assert not row(loss=0.2551).came_back
    assert row(loss=0.2).came_back  # better than without the fault is no harm
    assert not row(status="gave_up").came_back


def test_a_fault_that_did_no_harm_is_replaced_by_the_next_seed():
    asked = Namespace(first=2, seeds=2, faults=["bad_batch"], verdict=False, clean=1)
    done = [{"what": "rules", "fault": "bad_batch", "seed": 2, "harmless": True}]
    assert [job["seed"] for job in jobs(asked, done)] == [3, 4, 100]


def test_the_page_counts_rows_rollbacks_and_remedies():
    wrong = row(seed=3, status="gave_up", remedies=("hold_rate", "restart"), right=False, loss=9.0)
    rows = [("rules", row()), ("rules", wrong), ("rules", row(seed=4))]
    text = page(rows, [False, False], errors=0, harmless=["bad_batch on seed 5"])
    assert text.startswith(HEADING)
    assert "**2 of 3 came back (2 within 2 % on either side), 3 rollbacks in all" in text
    assert "replace_samples: 2 of 3, else restart" in text
    assert "2, of which 0 were acted upon" in text
    assert "bad batch on seed 5" in text
