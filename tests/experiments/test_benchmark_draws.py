"""The benchmark asks enough, evenly, and gives nothing away."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import yaml

from experiments.benchmark.catalogue import ENTRIES
from experiments.benchmark.draws import NUMBERS, all_draws, by_token, selected
from experiments.benchmark.heldout import HELD_OUT
from experiments.benchmark.labels import FILE, text
from experiments.benchmark.programs import FAMILIES
from experiments.benchmark.seeding import write
from stabexp.records import FAMILIES as CAUSES

DRAWS = all_draws()


def test_there_are_enough_faults_causes_programs_and_runs_to_leave_alone():
    faults = [draw for draw in DRAWS if not draw.spare]
    assert len(faults) >= 240
    assert len({draw.cause for draw in faults}) >= 12
    assert len({draw.cause for draw in DRAWS}) >= 14
    assert len({draw.family for draw in faults}) >= 8
    assert len(DRAWS) - len(faults) >= 60
    assert len(HELD_OUT) >= 3


def test_every_cause_is_one_that_a_verdict_can_name():
    assert {entry.cause for entry in ENTRIES} <= {*CAUSES, "healthy"}
    assert {cause for entry in ENTRIES for cause in entry.also} <= set(CAUSES)


def test_held_out_programs_meet_most_causes_too():
    causes = {draw.cause for draw in DRAWS if draw.held_out and not draw.spare}
    assert len(causes) >= 8
    assert set(FAMILIES) >= HELD_OUT


def test_names_and_tokens_are_unique_and_lead_back():
    assert len({draw.name for draw in DRAWS}) == len(DRAWS)
    assert all(by_token(draw.token) is draw for draw in DRAWS)


def test_each_number_is_spread_evenly_over_a_faults_draws():
    for entry in ENTRIES:
        own = [draw for draw in DRAWS if draw.entry is entry]
        for column in range(NUMBERS):
            strata = Counter(int(draw.numbers[column] * len(own)) for draw in own)
            assert set(strata.values()) == {1}


def test_what_a_bisect_sees_does_not_name_the_fault(tmp_path):
    for entry in ENTRIES:
        if entry.name == "weight_decay":
            continue  # the fault is a setting, and has the setting's name
        draw = next(draw for draw in DRAWS if draw.entry is entry)
        folder = tmp_path / draw.token
        seen = write(draw, folder).read_text("utf-8") + (folder / "program.py").read_text("utf-8")
        assert entry.name not in seen
        assert "expect:" not in yaml.safe_load(seen.partition('"""')[0])


def test_the_labels_file_is_the_one_that_the_draws_make():
    assert FILE.read_text("utf-8") == text()
    labels = json.loads(text())
    assert all(reason for label in labels.values() for reason in label["also"].values())


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        pytest.param({"only": frozenset({"data"})}, lambda d: d.cause == "data", id="a cause"),
        pytest.param(
            {"only": frozenset({"frozen"})}, lambda d: d.entry.name == "frozen", id="fault"
        ),
        pytest.param({"families": frozenset({"rnn"})}, lambda d: d.family == "rnn", id="a family"),
        pytest.param({"held_out": True}, lambda d: d.held_out, id="held out"),
        pytest.param({"held_out": False}, lambda d: not d.held_out, id="all others"),
    ],
)
def test_a_subset_holds_what_was_asked_for(options, kept):
    assert selected(DRAWS, **options) == [draw for draw in DRAWS if kept(draw)]


def test_a_limited_subset_is_spread_over_the_list():
    few = selected(DRAWS, limit=20)
    assert len(few) == 20
    assert len({draw.entry.name for draw in few}) >= 15
