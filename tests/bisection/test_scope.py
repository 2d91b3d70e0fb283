"""Good, bad and skip say where a bisect looks, and what makes no sense is refused."""

from __future__ import annotations

import pytest

from stabexp.bisection.scope import kept_checkpoint, parse_ranges, scope
from stabexp.errors import ConfigError
from stabexp.records import Divergence

KEPT = [0, 50, 100, 150, 200]
CRASH = Divergence(
    detector="divergence",
    detected=180,
    onset=170,
    pattern="sudden_jump",
    value=9.0,
    limit=2.0,
    message="the loss rose",
)


def test_told_nothing_every_checkpoint_before_the_crash_is_a_start():
    found = scope(KEPT, CRASH)
    assert (found.starts, found.good, found.divergence) == ((0, 50, 100, 150), None, CRASH)
    assert found.notices == ()


def test_bad_is_the_step_taken_as_detected_and_moves_the_onset_only_back():
    early = scope(KEPT, CRASH, bad=120)
    assert (early.divergence.detected, early.divergence.onset) == (120, 120)
    assert early.starts == (0, 50, 100)
    late = scope(KEPT, CRASH, bad=195, last_step=220)
    assert (late.divergence.detected, late.divergence.onset) == (195, 170)


@pytest.mark.parametrize(
    ("skip", "starts"),
    [
        ("", (0, 50, 100, 150)),
        ("100", (0, 50, 150)),
        ("50-120", (0, 150)),
        ("50-60, 150", (0, 100)),
        (["0", "100-100"], (50, 150)),
    ],
)
def test_what_is_skipped_is_never_started_from(skip, starts):
    assert scope(KEPT, CRASH, skip=skip).starts == starts


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"good": 60}, r"--good 60: .* the nearest are 50 and 100"),
        ({"good": 250}, r"--good 250: .* the nearest is 200"),
        ({"good": 200}, r"--good 200: does not lie before the bad step 180; .* 0, 50, 100, 150 do"),
        ({"good": 100, "bad": 100}, r"--good 100: does not lie before the bad step 100"),
        ({"good": 0, "bad": 0}, r"the bad step 0; no checkpoint does"),
        ({"good": 100, "skip": "90-110"}, r"--good 100: is skipped by --skip"),
        ({"bad": 181}, r"--bad 181: not a recorded step; the run has steps 0 to 180"),
        ({"bad": -1}, r"--bad -1: not a recorded step"),
        ({"skip": "0-200"}, r"--skip leaves nothing to start from: .* 0, 50, 100, 150 before"),
        ({"skip": "20-10"}, r"--skip 20-10: ends before it begins; write 10-20"),
        ({"skip": "ten"}, r"--skip ten: expected steps or ranges"),
        ({"skip": "1-2-3"}, r"--skip 1-2-3: expected steps or ranges"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_remedy(asked, says):
    with pytest.raises(ConfigError, match=says):
        scope(KEPT, CRASH, **asked)


def test_without_a_checkpoint_before_the_crash_there_is_no_bisect():
    with pytest.raises(ConfigError, match=r"no checkpoint lies before step 180: kept .* 190"):
        scope([190], CRASH)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"skip": "10-20"}, "--skip 10-20: no checkpoint is there"),
        ({"good": 100, "bad": 150}, None),
        ({"good": 175}, "--good 175 lies after the onset at step 170"),
    ],
)
def test_what_has_no_effect_or_a_risk_is_said(asked, says):
    notices = scope([*KEPT, 175], CRASH, **asked).notices
    assert [notice.startswith(says or "") for notice in notices] == ([True] if says else [])


def test_a_range_is_read_as_typed():
    assert parse_ranges("7, 10 - 20,") == [(7, 7), (10, 20)]


def test_a_checkpoint_asked_for_by_hand_must_be_kept():
    assert kept_checkpoint(50, KEPT, option="--from") == 50
    with pytest.raises(ConfigError, match=r"--from 3: .* has none that can be used"):
        kept_checkpoint(3, [], option="--from")
