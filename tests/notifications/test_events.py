"""What happened to a run follows from its files, with the same ids whoever reads them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from made_runs import bisected, made_run, step

from stabexp.notifications.events import Happenings, settled
from stabexp.notifications.ledger import LEDGER, Ledger
from stabexp.notifications.sending import Answer
from stabexp.notifications.targets import EVENT_NAMES, EventTarget
from stabexp.tracking import RunDirectory

ALARM = {"step": 3, "by": "monitors", "alarm": "gradient explodes", "message": "norm 70"}
WARNING = {"step": 4, "by": "early_warning", "what": "warning", "kind": "rate_ramp", "message": "w"}
RECOVERY = {
    "run_id": "run-1",
    "status": "recovered",
    "incident": "diverged",
    "what": "it diverged",
    "summary": "it was recovered",
    "steps": 60,
    "actions": [
        {
            "number": 1,
            "remedy": "lower_rate",
            "why": "because",
            "crashed_run": "run-1",
            "run_id": "run-1-recovery-1",
            "from_step": 5,
            "settings": {"optimizer.lr": 0.1},
            "outcome": "trained_to_the_end",
        }
    ],
}


def events(directory, now=1.0):
    return Happenings(RunDirectory.open(directory.path)).read(now)


def by_hand(tmp_path, **known):
    return made_run(tmp_path, steps=[step(n) for n in range(8)], **known)


def told(found):
    return [(event.event, event.step, event.status, event.message) for event in found]


def test_a_divergence_is_told_with_what_to_do(tmp_path):
    directory = by_hand(tmp_path, diverged=True)
    (event,) = events(directory)
    assert (event.event, event.step, event.run_id) == ("divergence", 7, "run-1")
    assert event.message == "sudden jump, onset 5: the loss left its floor of 2.1"
    assert event.next_command == f"stabexp bisect --root {tmp_path} run-1"


def test_a_verdict_is_told_with_cause_fix_and_next_command(tmp_path):
    directory = by_hand(tmp_path, diverged=True, status="FAILED")
    bisected(directory)
    (event,) = [e for e in events(directory) if e.event == "verdict"]
    assert (event.cause, event.confidence, event.fix) == (
        "learning_rate",
        0.91,
        {"optimizer.lr": 0.01},
    )
    assert event.next_command == "stabexp run exp.yaml -o optimizer.lr=0.01"


def test_every_bisect_has_a_verdict_of_its_own(tmp_path):
    directory = by_hand(tmp_path, diverged=True, status="FAILED")
    bisected(directory, 1)
    bisected(directory, 2, cause="data")
    verdicts = [e for e in events(directory) if e.event == "verdict"]
    assert [e.cause for e in verdicts] == ["learning_rate", "data"]
    assert len({e.id for e in verdicts}) == 2


def test_the_first_alarm_of_each_kind_is_told_and_every_warning(tmp_path):
    other = {**ALARM, "alarm": "not finite", "step": 5}
    later = {**WARNING, "step": 9}
    directory = by_hand(tmp_path, events=[ALARM, {**ALARM, "step": 4}, other, WARNING, later])
    assert [(e.event, e.step) for e in events(directory)] == [
        ("alarm", 3),
        ("alarm", 5),
        ("warning", 4),
        ("warning", 9),
    ]


def test_a_recovery_is_told_rollback_by_rollback_and_at_its_end(tmp_path):
    directory = by_hand(tmp_path, diverged=True, status="FAILED")
    directory.write_json("recovery.json", RECOVERY)
    assert told(e for e in events(directory) if e.event == "recovery") == [
        ("recovery", 5, "running", "rollback 1 to step 5 with lower rate: trained to the end"),
        ("recovery", 59, "recovered", "it was recovered"),
    ]


@pytest.mark.parametrize(
    ("status", "diverged", "expected", "command"),
    [
        pytest.param("FINISHED", False, "finished", "", id="its end"),
        pytest.param("FAILED", True, "diverged", "stabexp bisect", id="a divergence"),
        pytest.param("FAILED", False, "failed", "stabexp run", id="an error"),
        pytest.param("KILLED", False, "killed", "stabexp run", id="an interruption"),
    ],
)
def test_the_end_of_a_run_is_told_when_it_is(tmp_path, status, diverged, expected, command):
    directory = by_hand(tmp_path, status=status, diverged=diverged)
    (event,) = [e for e in events(directory) if e.event == "end"]
    assert (event.status, event.step) == (expected, 7)
    assert event.next_command.startswith(command)


def test_an_error_is_told_with_its_message(tmp_path):
    directory = by_hand(tmp_path, status="FAILED")
    directory.write_json("error.json", {"type": "ValueError", "message": "no such file"})
    assert events(directory)[0].message == "failed after 8 steps: ValueError: no such file"


def test_a_process_that_dies_without_a_word_is_an_end(tmp_path):
    code = "from pathlib import Path; from made_runs import made_run; "
    code += f"made_run(Path({str(tmp_path)!r}))"
    folder = os.path.dirname(sys.modules["made_runs"].__file__)
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": folder}
    )
    directory = RunDirectory.open(tmp_path / "runs" / "run-1")
    (event,) = events(directory)
    assert (event.event, event.status) == ("end", "killed")
    directory.finish("KILLED")  # what the uploader writes down a little later
    assert [e.id for e in events(directory)] == [event.id]
    directory.resume()
    assert events(directory) == []
    directory.finish("FINISHED")
    assert events(directory)[0].id != event.id


def test_a_run_that_goes_on_has_not_ended(tmp_path):
    directory = by_hand(tmp_path)
    assert events(directory) == []
    assert not settled(directory)


def test_what_is_made_again_after_an_interruption_is_not_told_again(tmp_path):
    directory = by_hand(tmp_path, events=[WARNING])
    first = [e.id for e in events(directory)]
    directory.rewind(2)
    directory.log_event(WARNING)
    assert [e.id for e in events(directory)] == first


def test_ids_are_those_of_what_happened_not_of_when_it_was_seen(tmp_path):
    directory = by_hand(tmp_path, diverged=True, status="FAILED", events=[ALARM, WARNING])
    bisected(directory)
    directory.write_json("recovery.json", RECOVERY)
    one, other = events(directory, 1.0), events(directory, 2.0)
    assert [e.id for e in one] == [e.id for e in other]
    assert len({e.id for e in one}) == len(one) == 7
    assert {e.event for e in one} == set(EVENT_NAMES)


def test_another_run_of_the_same_name_has_other_ids(tmp_path):
    ids = {events(by_hand(tmp_path / name, diverged=True))[0].id for name in ("a", "b")}
    assert len(ids) == 2


@pytest.mark.parametrize("name", ["divergence.json", "recovery.json", "events.jsonl"])
def test_a_damaged_file_hides_its_own_events_only(tmp_path, name):
    directory = by_hand(tmp_path, diverged=True, status="FAILED", events=[ALARM])
    directory.write_json("recovery.json", RECOVERY)
    before = {e.event for e in events(directory)}
    (directory.path / name).write_text("{damaged\nmore\n")
    assert len(before - {e.event for e in events(directory)}) == 1


TARGET = EventTarget(on=["divergence", "end"], command="x")


def noted(directory):
    ledger = Ledger.read(directory.path)
    ledger.note(events(directory), [TARGET])
    return ledger


def test_what_arrived_is_not_pending_and_what_did_not_is(tmp_path):
    directory = by_hand(tmp_path, diverged=True, status="FAILED")
    ledger = noted(directory)
    first, second = ledger.pending(TARGET)
    ledger.record(first, TARGET, Answer(False, "500"), attempt=1, seconds=0.1)
    ledger.record(first, TARGET, Answer(True, "200"), attempt=2, seconds=0.1)
    ledger.record(second, TARGET, Answer(False, "500"), attempt=1, seconds=0.1)
    again = Ledger.read(directory.path)
    assert again.pending(TARGET) == [second]
    assert [(d.id, d.attempt, d.arrived, d.answer) for d in again.deliveries] == [
        (first.id, 1, False, "500"),
        (first.id, 2, True, "200"),
        (second.id, 1, False, "500"),
    ]


def test_events_that_nobody_asked_for_are_not_written_down(tmp_path):
    directory = by_hand(tmp_path, diverged=True, status="FAILED", events=[ALARM])
    assert {e.event for e in noted(directory).events.values()} == {"divergence", "end"}


def test_noticing_twice_writes_once(tmp_path):
    directory = by_hand(tmp_path, diverged=True)
    noted(directory)
    size = (directory.path / LEDGER).stat().st_size
    noted(directory)
    assert (directory.path / LEDGER).stat().st_size == size


def test_a_ledger_torn_by_a_kill_is_read_up_to_there(tmp_path):
    directory = by_hand(tmp_path, diverged=True)
    ledger = noted(directory)
    (event,) = ledger.pending(TARGET)
    with open(directory.path / LEDGER, "a") as file:
        file.write('{"delivery": {"id": "' + event.id)
    assert Ledger.read(directory.path).pending(TARGET) == [event]
