"""docs/events.md says what there is, and its recipes run."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml

from stabexp.config import parse_document, validate
from stabexp.experiment import Experiment
from stabexp.notifications.delivering import COMMAND_TRIES, LONGEST_PAUSE
from stabexp.notifications.notifier import GIVE_UP, OLDEST
from stabexp.notifications.sending import send
from stabexp.notifications.targets import EVENT_NAMES, EventTarget
from stabexp.notifications.trial import trial_payload
from stabexp.notifications.wording import LONGEST_VARIABLE, variables

TEXT = (Path(__file__).parents[2] / "docs" / "events.md").read_text("utf-8")
HEAD = "name: x\ntask: mlp\noptimizer: {name: sgd, lr: 0.1}\n"
BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
RECIPES = [
    target
    for block in BLOCKS
    for target in validate(Experiment, parse_document(HEAD + block)).on_event
]
COMMANDS = [target for target in RECIPES if target.command is not None]


def test_every_example_is_an_experiment_file():
    assert len(RECIPES) == sum(
        len(yaml.safe_load(block.replace("on:", "o:"))["on_event"]) for block in BLOCKS
    )


def column(first):
    """Return the first column of the table that begins with this heading."""
    table = re.search(rf"^\| {first} \|.*?\n\n", TEXT, re.MULTILINE | re.DOTALL)[0]
    return re.findall(r"^\| `(\w+)`", table, re.MULTILINE)


def test_every_key_and_every_event_is_named():
    assert set(column("key")) == set(EventTarget.model_fields)
    assert tuple(column("event")) == EVENT_NAMES


def test_everything_that_is_sent_is_named():
    data = trial_payload("verdict", "x")
    assert all(f"`{key}`" in TEXT for key in data)
    named = set(re.findall(r"STABEXP_[A-Z_]+", TEXT))
    assert named <= set(variables(data))


def test_its_figures_are_those_of_the_code():
    words = " ".join(TEXT.split())
    assert f"at most {LONGEST_VARIABLE:,} characters" in words
    assert f"at most every {LONGEST_PAUSE / 60:.0f} minutes" in words
    assert f"goes on and {GIVE_UP / 60:.0f} minutes more" in words
    assert f"up to {OLDEST / 86_400:.0f} days old" in words
    assert COMMAND_TRIES == 3
    assert "it is tried three times" in words


@pytest.mark.parametrize("target", COMMANDS, ids=lambda target: str(target.command))
def test_a_recipe_runs_the_program_with_what_it_needs(tmp_path, target):
    """The program writes down what it is given instead of doing it."""
    for name in ("mail", "scancel", "scontrol"):
        program = tmp_path / name
        program.write_text(
            f'#!/bin/sh\nprintf "%s\\n" {name} "$@" > "{tmp_path}/given"\ncat > "{tmp_path}/said"\n'
        )
        program.chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "4711",
        "NEXT_JOB": "4712",
        "MAIL_TO": "me@example.org",
    }
    data = {**trial_payload(target.on[-1], "run-1"), "cause": "data"}
    answer = send(target, data, environment=environment, folder=tmp_path)
    assert answer.arrived, answer.text
    given = (tmp_path / "given").read_text().splitlines()
    assert given in (
        ["mail", "-s", "a training is over", "me@example.org"],
        ["mail", "-s", "stabexp: verdict of run-1", "me@example.org"],
        ["scontrol", "hold", "4712"],
        ["scontrol", "update", "JobId=4711", "Comment=cause: data"],
        ["scancel", "4711"],
    )
    if given[0] == "mail":
        assert (tmp_path / "said").read_text().startswith("run-1: ")
