from __future__ import annotations

import inspect
import math
from collections import deque

import pytest

from stabexp.detectors import DEFAULT_DETECTORS, DETECTORS, build, history_needed, judge
from stabexp.errors import ConfigError

CALM = [1.0, 1.05, 0.95, 1.02, 0.98] * 12


@pytest.mark.parametrize("name", DETECTORS)
def test_name_file_and_class_agree_and_every_field_is_explained(name):
    (detector,) = build({name: {}})
    assert detector.name == name
    assert inspect.getmodule(type(detector)).__name__ == f"stabexp.detectors.{name}"
    assert type(detector).__doc__.startswith("Diverged when ")
    assert all(field.description for field in type(detector).model_fields.values())
    assert build({name: detector.model_dump()}) == (detector,)


@pytest.mark.parametrize("name", DETECTORS)
@pytest.mark.parametrize("losses", [[2.0], [2.0, 1.9], [2.0, 9.0, 2.0], CALM], ids=len)
def test_every_detector_takes_a_short_history_as_a_list_or_a_deque(records, name, losses):
    (detector,) = build({name: None})
    assert detector.check(records(*losses)) is None
    assert detector.check(deque(records(*losses))) is None


def test_the_default_set_is_taken_when_none_is_named():
    assert tuple(detector.name for detector in build({})) == DEFAULT_DETECTORS


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"lose_spike": {}}, "detectors.lose_spike: unknown detector; did you mean 'loss_spike'?"),
        (
            {"loss_spike": {"windw": 5}},
            "detectors.loss_spike.windw: unknown key; did you mean 'window'?",
        ),
        ({"loss_spike": {"window": "many"}}, "detectors.loss_spike.window: expected"),
        ({"loss_spike": {"window": "1"}}, "greater than or equal to 2"),
        ({"loss_spike": "50"}, "detectors.loss_spike: expected keys and values, found '50'"),
    ],
)
def test_a_wrong_detector_names_place_value_and_remedy(names, message):
    with pytest.raises(ConfigError) as error:
        build(names)
    assert message in str(error.value)


def test_the_history_needed_is_the_longest():
    assert history_needed(build({})) == 205
    assert history_needed(build({"plateau": {"window": "900"}, "non_finite": None})) == 900
    assert history_needed(()) == 64


def test_the_first_detector_that_fires_is_named_with_onset_and_pattern(records):
    found = judge(build({}), deque(records(*CALM, 9000.0, math.nan), maxlen=205))
    assert found.detector == "non_finite"
    assert (found.onset, found.detected, found.pattern) == (60, 61, "sudden_jump")


def test_a_plateau_is_a_pattern_of_its_own(records):
    found = judge(build({"plateau": {"window": "40"}}), records(*CALM))
    assert (found.detector, found.pattern, found.onset) == ("plateau", "plateau", 20)


def test_without_records_there_is_no_finding():
    assert judge(build({}), []) is None


def test_a_replay_that_does_not_inherit_its_history_would_be_called_stable(records):
    steps = records(*CALM, *[1.6] * 6)
    fork = steps[60:]
    assert judge(build({}), fork) is None
    assert judge(build({}), [*steps[:60], *fork]) is not None
