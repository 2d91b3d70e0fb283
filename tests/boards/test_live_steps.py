"""A growing step log is followed without reading it twice, and says what reading it whole does."""

from __future__ import annotations

import math
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import step

from stabexp.boards import live_steps
from stabexp.boards.live_steps import KEPT_STEPS, MINUTE, LiveSteps
from stabexp.errors import TrackingError
from stabexp.tracking.step_log import StepLog, encode_step, read_steps


def written(path, records):
    log = StepLog(path)
    for record in records:
        log.append(record)
    log.close()


@st.composite
def histories(draw):
    """Pieces of a log as they are appended: steps with figures at some of them, and rewinds."""
    at, clock, pieces = 0, 0.0, []
    for _ in range(draw(st.integers(1, 5))):
        piece = []
        for _ in range(draw(st.integers(0, 8))):
            if at and draw(st.integers(0, 9)) == 0:
                at = draw(st.integers(0, at))
                piece.append(at)
            clock += draw(st.sampled_from([0.1, 7.0, 40.0]))
            loss = draw(st.sampled_from([1.5, 2.0, math.nan, math.inf]))
            metrics = {"age": float(at)} if draw(st.booleans()) else {}
            layers = {"first": {"grad_norm": clock}} if draw(st.booleans()) else None
            piece.append(
                step(
                    at,
                    time=clock,
                    loss=loss,
                    grad_norm=clock / 3,
                    skipped=draw(st.booleans()),
                    metrics=metrics,
                    layers=layers,
                )
            )
            at += 1
        pieces.append(piece)
    return pieces


@settings(max_examples=50)
@given(histories())
def test_after_every_piece_it_knows_what_the_whole_log_says(tmp_path_factory, pieces):
    path = tmp_path_factory.mktemp("log") / "steps.jsonl"
    live = LiveSteps(path)
    made = skipped = 0
    for piece in pieces:
        log = StepLog(path)
        for each in piece:
            if isinstance(each, int):
                log.rewind(each)
            else:
                log.append(each)
                made, skipped = made + 1, skipped + each.skipped
        log.close()
        live.refresh()
        records = read_steps(path)
        assert (live.made, live.skipped, live.unread) == (made, skipped, 0)
        if not records:
            continue
        last = records[-1]
        minute = [r for r in records if r.time >= last.time - MINUTE]
        known = [r for r in records if "age" in r.metrics]
        measured = [r for r in records if r.layers]
        assert repr(live.latest) == repr(last)
        # A step made again may be in the minute by its time and not by its place.
        assert {b.step for b in live.minute} == {r.step for r in minute}
        assert live.norm_max == max(r.grad_norm for r in minute)
        assert live.figures == (
            {"age": (known[-1].step, known[-1].metrics["age"])} if known else {}
        )
        assert live.layers.get("first", {}) == (
            {"grad_norm": (measured[-1].step, measured[-1].layers["first"]["grad_norm"])}
            if measured
            else {}
        )


def test_a_torn_line_waits_for_its_end(tmp_path):
    path = tmp_path / "steps.jsonl"
    written(path, [step(0)])
    whole = encode_step(step(1, loss=7.0)) + "\n"
    live = LiveSteps(path)
    with open(path, "a") as file:
        file.write(whole[:30])
    live.refresh()
    assert (live.latest.step, live.made) == (0, 1)
    with open(path, "a") as file:
        file.write(whole[30:])
    live.refresh()
    assert (live.latest.loss, live.made) == (7.0, 2)


def test_what_was_read_is_not_read_again(tmp_path, monkeypatch):
    path = tmp_path / "steps.jsonl"
    written(path, [step(n) for n in range(3000)])
    live = LiveSteps(path)
    live.refresh()
    size = path.stat().st_size
    read = []
    real = open

    def counting(*arguments):
        file = real(*arguments)

        class Counted:
            def __getattr__(self, name):
                return getattr(file, name)

            def __enter__(self):
                return self

            def __exit__(self, *_):
                file.close()

            def read(self, count):
                read.append(count)
                return file.read(count)

        return Counted()

    monkeypatch.setattr(live_steps, "open", counting, raising=False)
    live.refresh()
    assert read == []
    written(path, [step(3000)])
    live.refresh()
    assert sum(read) == 2 * (path.stat().st_size - size)
    assert (live.latest.step, live.made) == (3000, 3001)


def test_a_long_log_is_counted_in_bounded_pieces_and_shown_at_once(tmp_path, monkeypatch):
    path = tmp_path / "steps.jsonl"
    written(path, [step(n, skipped=n == 2) for n in range(300)])
    monkeypatch.setattr(live_steps, "COUNTED_BYTES", 20_000)
    monkeypatch.setattr(live_steps, "_BLOCK", 1_000)
    live = LiveSteps(path)
    live.refresh()
    assert live.latest.step == 299
    assert 0 < live.made < 300
    assert live.unread > 0
    for _ in range(10):
        live.refresh()
    assert (live.made, live.skipped, live.unread) == (300, 1, 0)


def test_a_figure_that_is_measured_now_and_then_is_kept_and_an_old_one_is_dropped(tmp_path):
    path = tmp_path / "steps.jsonl"
    last = KEPT_STEPS + 10
    records = [
        step(n, metrics={"old": 1.0} if n == 5 else {"rare": 2.0} if n == 300 else {})
        for n in range(last)
    ]
    written(path, records[:600])
    live = LiveSteps(path)
    live.refresh()
    assert live.figures == {"old": (5, 1.0), "rare": (300, 2.0)}
    written(path, records[600:])
    live.refresh()
    assert live.figures == {"rare": (300, 2.0)}


def test_a_figure_that_begins_in_the_middle_of_a_run_is_found(tmp_path):
    path = tmp_path / "steps.jsonl"
    live = LiveSteps(path)
    for start in range(0, 400, 10):
        # It is measured at steps that are never the newest of a piece.
        written(
            path,
            [
                step(n, metrics={"new": float(n)} if n > 200 and n % 10 == 5 else {"every": 1.0})
                for n in range(start, start + 10)
            ],
        )
        live.refresh()
    assert live.figures["new"] == (395, 395.0)


def test_another_file_at_the_same_place_is_read_anew(tmp_path):
    path, other = tmp_path / "steps.jsonl", tmp_path / "other"
    written(path, [step(n) for n in range(5)])
    live = LiveSteps(path)
    live.refresh()
    written(other, [step(n) for n in range(9)])
    os.replace(other, path)
    live.refresh()
    assert (live.latest.step, live.made) == (8, 9)


def test_a_damaged_line_is_told_and_does_not_hide_the_others(tmp_path):
    path = tmp_path / "steps.jsonl"
    written(path, [step(0)])
    with open(path, "a") as file:
        file.write("{damaged\n" + encode_step(step(2)) + "\n")
    live = LiveSteps(path)
    with pytest.raises(TrackingError, match="not a step record"):
        live.refresh()
    assert live.latest.step == 2


def test_rates_are_over_the_latest_minute_of_the_run(tmp_path):
    path = tmp_path / "steps.jsonl"
    slow = [step(n, time=10.0 * n) for n in range(10)]
    fast = [step(10 + n, time=1000 + n / 4) for n in range(21)]
    written(path, slow + fast)
    live = LiveSteps(path)
    live.refresh()
    assert live.rates == pytest.approx((4.0, 32.0))
    assert live.seconds == 0.5


def test_a_log_that_is_not_there_yet_is_an_empty_one(tmp_path):
    live = LiveSteps(tmp_path / "steps.jsonl")
    live.refresh()
    assert live.latest is None
    assert math.isnan(live.rates[0])
