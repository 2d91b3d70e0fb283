"""Two real processes that train together, and one that falls out of step."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("gloo_rank.py")

FAULTS = {
    "none": ([[0, 0]] * 4, set()),
    "not averaged once": ([[0, 0], [0, 0], [1, 1], [0, 1]], {2}),
    "weights of one changed": ([[0, 0], [0, 0], [0, 1], [0, 1]], {2}),
}
"""Fault → processes that differ in gradients and in weights at each step, steps of alarms."""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    meet = tmp_path_factory.mktemp("ranks") / "meet"
    ranks = [
        subprocess.Popen(
            [sys.executable, SCRIPT, str(rank), str(meet), *FAULTS],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    found = []
    for rank in ranks:
        out, errors = rank.communicate(timeout=300)
        assert rank.returncode == 0, errors
        found.append(json.loads(out.splitlines()[-1]))
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize("fault", FAULTS)
def test_processes_that_differ_are_counted_and_alarming(told, fault):
    seen, steps = FAULTS[fault]
    assert told[fault]["seen"] == seen
    messages = told[fault]["alarms"]
    assert {int(line.split("at step ")[1].partition(":")[0]) for line in messages} == steps
    assert all(line.startswith("processes out of step") for line in messages)
