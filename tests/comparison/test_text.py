"""A comparison reads as a few plain lines."""

from __future__ import annotations

import dataclasses

import pytest

from stabexp.comparison import Comparison, KeyDifference, RecordDifference, comparison_text
from stabexp.comparison.result import CheckpointDifference, KeySearch, StateDifference
from stabexp.records import to_json

PLAIN = Comparison(first="a-1", second="b-2", shared_steps=40, record=None)
RECORD = RecordDifference(step=13, field="loss", first=2.25, second=2.5)
STATE = StateDifference(
    name="model.0.weight", kind="parameter", largest=1.2e-7, relative=3e-8, elements=64, of=4096
)
RATE = StateDifference(name="optimizer.groups.0.lr", kind="optimizer", detail="0.1 and 0.2")
SEARCH = KeySearch(good="a-1", bad="b-2", finding="found", settings=("clip", "optimizer.lr"))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "a-1 and b-2: all 40 common steps are the same in every bit"),
        ({}, "their settings are the same"),
        ({"shared_steps": 0}, "a-1 and b-2: they recorded no step in common"),
        ({"record": RECORD}, "a-1 and b-2: they part at step 13"),
        ({"record": RECORD}, "  steps: step 13 has another loss: 2.25 | 2.5"),
        (
            {"checkpoint": CheckpointDifference(step=20, differences=(STATE, STATE))},
            "  state: before step 20, parameter model.0.weight: 64 of 4096 elements, by at most "
            "1.2e-07 (3e-08 of its norm); 1 more differ",
        ),
        (
            {"checkpoint": CheckpointDifference(step=0, differences=(RATE,))},
            "  state: before step 0, optimizer.groups.0.lr: 0.1 and 0.2",
        ),
        (
            {"checkpoint": CheckpointDifference(step=0, differences=(RATE,))},
            "  no state that both kept is equal, so no replay can start from the same one",
        ),
        ({"record": RECORD, "same_until": 10}, "  the states before step 10 are equal"),
        (
            {"keys": (KeyDifference(key="clip", first=None, second=1.0),)},
            "  clip  not set | 1.0",
        ),
        (
            {"keys": tuple(KeyDifference(key=f"k{i}", first=0, second=i) for i in range(1, 26))},
            "  and 5 more",
        ),
        ({"fingerprint": ("torch differs: 2 and 3",)}, "  elsewhere: torch differs: 2 and 3"),
    ],
)
def test_a_line_says(changes, line):
    found = dataclasses.replace(PLAIN, **changes)
    assert line in comparison_text(found).splitlines()
    assert to_json(found)["first"] == "a-1"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "with clip and optimizer.lr of b-2, a-1 diverges too (7 trainings, 90 steps)"),
        ({"untold": ("clip",)}, "; whether clip is needed could not be judged"),
        ({"finding": "good_diverges"}, "a-1 diverges when it is run again, with none of"),
        ({"finding": "not_explained"}, "a-1 does not diverge with all settings of b-2"),
        ({"finding": "unresolved"}, "a-1 could not be trained to a judgement"),
    ],
)
def test_a_search_says(changes, says):
    search = dataclasses.replace(SEARCH, questions=7, steps=90, **changes)
    text = comparison_text(dataclasses.replace(PLAIN, search=search))
    assert says in text.splitlines()[-1]
