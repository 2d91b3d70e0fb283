"""Events reach their receivers in order, again and again where it helps, and at least once."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time

import pytest
from made_runs import made_run, step

from stabexp.errors import BusyError
from stabexp.notifications import delivering
from stabexp.notifications.delivering import (
    COMMAND_TRIES,
    LOCK,
    LONGEST_PAUSE,
    Lane,
    deliver_now,
    deliver_others,
)
from stabexp.notifications.ledger import Ledger, write_targets
from stabexp.notifications.notifier import follow
from stabexp.notifications.sending import Answer
from stabexp.notifications.start import start_notifier, unset_names
from stabexp.notifications.targets import EventTarget
from stabexp.tracking import exclusive

YES, NO, NEVER = Answer(True, "200"), Answer(False, "500"), Answer(False, "404", again=False)
HOOK = EventTarget(on=["divergence", "end"], webhook="${HOOK}")


def ended(tmp_path, name="run-1", targets=(HOOK,)):
    directory = made_run(
        tmp_path, name, steps=[step(n) for n in range(8)], diverged=True, status="FAILED"
    )
    write_targets(directory.path, targets)
    return directory


def asked(directory):
    return [(d.attempt, d.arrived, d.answer) for d in Ledger.read(directory.path).deliveries]


class Course:
    """One receiver that answers as planned, and a clock that is moved by hand."""

    def __init__(self, directory, target, *answers):
        self.ledger = Ledger.read(directory.path)
        self.ledger.note(delivering.Happenings(directory).read(1.0), [target])
        self.asked, self.now = [], 0.0
        planned = list(answers)

        def sending(_, event):
            self.asked.append((round(self.now, 3), event.event))
            return planned.pop(0)

        self.lane = Lane(target, self.ledger, sending)

    def until(self, seconds):
        while self.now <= seconds:
            self.lane.step(self.now)
            while self.lane.busy:
                time.sleep(0.001)
                self.lane.step(self.now)
            self.now += 0.5


def test_events_come_in_their_order_and_the_next_waits_for_the_one_before(tmp_path):
    course = Course(ended(tmp_path), HOOK, NO, NO, YES, YES)
    course.until(20)
    assert [what for _, what in course.asked] == ["divergence"] * 3 + ["end"]
    assert course.lane.done


def test_the_pauses_double(tmp_path):
    course = Course(ended(tmp_path), HOOK, *[NO] * 4, YES, YES)
    course.until(60)
    assert [at for at, _ in course.asked[:5]] == [0, 1, 3, 7, 15]


def test_no_pause_is_longer_than_five_minutes(tmp_path):
    course = Course(ended(tmp_path), HOOK, *[NO] * 14)
    course.until(2000)
    times = [at for at, _ in course.asked]
    assert max(b - a for a, b in itertools.pairwise(times)) == LONGEST_PAUSE


def test_a_receiver_that_asks_for_time_gets_it(tmp_path):
    course = Course(ended(tmp_path), HOOK, Answer(False, "429", after=30.0), YES, YES)
    course.until(60)
    assert [at for at, _ in course.asked[:2]] == [0, 30]


def test_what_is_refused_is_left_and_does_not_hold_up_the_next(tmp_path):
    course = Course(ended(tmp_path), HOOK, NEVER, YES)
    course.until(60)
    assert [what for _, what in course.asked] == ["divergence", "end"]
    assert [event.event for event in course.ledger.pending(HOOK)] == ["divergence"]
    assert course.lane.done


def test_a_command_is_tried_three_times(tmp_path):
    target = EventTarget(on=["divergence"], command="x")
    course = Course(ended(tmp_path), target, *[NO] * 9)
    course.until(60)
    assert len(course.asked) == COMMAND_TRIES


def test_what_is_left_is_sent_when_it_is_asked_for(tmp_path, receiver, monkeypatch):
    directory = ended(tmp_path)
    first = deliver_now(directory.path)
    assert (first.arrived, first.left) == (0, 2)
    assert first.problem == "webhook ${HOOK}: HOOK is not set"
    monkeypatch.setenv("HOOK", receiver.url)
    second = deliver_now(directory.path)
    assert (second.arrived, second.left, second.problem) == (2, 0, "")
    assert [r.json["event"] for r in receiver.received] == ["divergence", "end"]
    assert deliver_now(directory.path).arrived == 0
    assert len(receiver.received) == 2


def test_nobody_is_told_twice_at_once(tmp_path):
    directory = ended(tmp_path)
    with exclusive(directory.path / LOCK), pytest.raises(BusyError):
        deliver_now(directory.path)


def test_a_run_that_nobody_is_told_of_has_nothing_to_send(tmp_path):
    directory = made_run(tmp_path, diverged=True, status="FAILED")
    assert deliver_now(directory.path).left == 0
    assert not (directory.path / "notifications.jsonl").exists()


def test_another_run_that_begins_sends_what_is_left_of_the_others(tmp_path, receiver, monkeypatch):
    monkeypatch.setenv("HOOK", receiver.url)
    for name in ("mine", "one", "other"):
        ended(tmp_path, name)
    deliver_others(tmp_path, but="mine", newer_than=0.0)
    assert {r.json["run_id"] for r in receiver.received} == {"one", "other"}


def test_old_news_of_another_run_are_not_sent_unasked(tmp_path, receiver, monkeypatch):
    monkeypatch.setenv("HOOK", receiver.url)
    ended(tmp_path, "one")
    deliver_others(tmp_path, but="mine", newer_than=time.time() + 60)
    assert receiver.received == []


def dead_process():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_receiver_that_answers_500_is_tried_until_it_takes_it(tmp_path, receiver, monkeypatch):
    monkeypatch.setenv("HOOK", receiver.url)
    monkeypatch.setattr(delivering, "FIRST_PAUSE", 0.05)
    receiver.answers = [(500, {}), (503, {})]
    directory = ended(tmp_path)
    assert follow(directory.path, pid=dead_process()) == 0
    assert [answer[:2] for answer in asked(directory)] == [
        (1, False),
        (2, False),
        (3, True),
        (1, True),
    ]
    assert len({r.json["id"] for r in receiver.received}) == 2


def test_a_receiver_that_was_down_gets_it_when_it_is_there(tmp_path, down, monkeypatch):
    monkeypatch.setenv("HOOK", down.url)
    monkeypatch.setattr(delivering, "FIRST_PAUSE", 0.05)
    directory = ended(tmp_path)
    left = []
    teller = threading.Thread(
        target=lambda: left.append(follow(directory.path, pid=dead_process()))
    )
    teller.start()
    while not asked(directory):
        time.sleep(0.02)
    down.start()
    teller.join()
    assert left == [0]
    assert [r.json["event"] for r in down.received] == ["divergence", "end"]


def test_a_receiver_that_stays_down_is_given_up_and_kept_for_later(tmp_path, down, monkeypatch):
    monkeypatch.setenv("HOOK", down.url)
    directory = ended(tmp_path)
    assert follow(directory.path, pid=dead_process(), give_up=0.1) == 2
    down.start()
    assert deliver_now(directory.path).arrived == 2


def test_a_receiver_that_hangs_holds_up_nobody_else(tmp_path, receiver, monkeypatch):
    monkeypatch.setenv("HOOK", receiver.url)
    hanging = EventTarget(on=["divergence"], command="sleep 60", timeout=2)
    directory = ended(tmp_path, targets=[hanging, HOOK])
    follow(directory.path, pid=dead_process(), give_up=0.0)
    first = Ledger.read(directory.path).deliveries[0]
    assert (first.to, first.arrived) == ("webhook ${HOOK}", True)


def test_a_follower_waits_for_what_is_to_come(tmp_path, receiver, monkeypatch, until):
    monkeypatch.setenv("HOOK", receiver.url)
    directory = made_run(tmp_path, steps=[step(0)])
    write_targets(directory.path, [HOOK])
    teller = threading.Thread(target=follow, args=(directory.path,), kwargs={"pid": os.getpid()})
    teller.start()
    directory.finish("FINISHED")
    teller.join()
    assert [r.json["status"] for r in receiver.received] == ["finished"]


def test_a_follower_of_a_recovery_waits_for_the_recovery(tmp_path, receiver, monkeypatch):
    monkeypatch.setenv("HOOK", receiver.url)
    told = EventTarget(on=["recovery"], webhook="${HOOK}")
    directory = ended(tmp_path, targets=[told])
    known = {"pid": os.getpid(), "until": "recovery.json", "since": time.time() - 1}
    teller = threading.Thread(target=follow, args=(directory.path,), kwargs=known)
    teller.start()
    teller.join(2.0)  # the run is over, and nothing shows yet that more is to come
    assert teller.is_alive()
    directory.write_json(
        "recovery.json",
        {"run_id": "run-1", "status": "gave_up", "incident": "diverged", "what": "it diverged"},
    )
    teller.join()
    assert [r.json["status"] for r in receiver.received] == ["gave_up"]


def test_a_notifier_that_cannot_be_started_stops_nothing(tmp_path, monkeypatch):
    directory = made_run(tmp_path)
    monkeypatch.setattr("sys.executable", "/no/such/python")
    start_notifier(directory.path, [HOOK])
    start_notifier(directory.path / "not there", [HOOK])
    start_notifier(directory.path, [])


def test_variables_that_are_missing_are_named(monkeypatch):
    monkeypatch.setenv("HERE", "x")
    target = EventTarget(webhook="${HERE}", headers={"Authorization": "Bearer ${MISSING_ONE}"})
    assert unset_names([target]) == ["MISSING_ONE"]
