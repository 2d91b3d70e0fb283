"""The dose searches survive kills, are shared by processes, and never ask a dose twice."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import optuna
import pytest

from stabexp.bisection.ladder import Ladder
from stabexp.bisection.optuna_study import DoseStudies
from stabexp.bisection.search import Decision, decide
from stabexp.errors import TrackingError
from stabexp.records import Outcome

RATES = Ladder(
    variable="learning_rate", doses=(0.7, 0.5, 0.35, 0.25, 0.1, 0.03, 0.01, 0.001), original=1.0
)
FP64 = Ladder(variable="precision", doses=("fp64",), original="fp32")
HIDDEN: list[Outcome] = ["diverged"] * 3 + ["cured"] * 3 + ["stalled"] * 2
ROOT = Path(__file__).parents[2]

WORKER = """
import json, sys, time
from pathlib import Path
from stabexp.bisection.ladder import Ladder
from stabexp.bisection.optuna_study import DoseStudies
doses, outcomes, pause = json.loads(sys.argv[2])
ladder = Ladder(variable="learning_rate", doses=tuple(doses), original=1.0)
with DoseStudies(Path(sys.argv[1])) as studies:
    studies.reopen()
    print("open", flush=True)
    sys.stdin.readline()
    while studies.answer(ladder) is None:
        question = studies.ask(ladder)
        if question is None:
            time.sleep(0.02)
            continue
        print(question.index, flush=True)
        time.sleep(pause)
        studies.tell(question, outcomes[question.index])
"""


def start(database, *, ladder=RATES, hidden=HIDDEN, pause=0.0):
    """Start a process that searches the ladder once it reads a line."""
    setup = json.dumps([ladder.doses, hidden, pause])
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", WORKER, str(database), setup],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def go(worker):
    worker.stdin.write("\n")
    worker.stdin.flush()


def finish(worker) -> list[int]:
    out, _ = worker.communicate(timeout=60)
    assert worker.returncode == 0
    return [int(line) for line in out.split() if line != "open"]


def test_a_search_reaches_the_answer_that_the_outcomes_settle(tmp_path):
    with DoseStudies(tmp_path / "new folder" / "search.db") as studies:
        asked = []
        while (answer := studies.answer(RATES)) is None:
            question = studies.ask(RATES)
            assert question is not None
            asked.append(question.index)
            attributes = {"trial": f"key{question.index}", "loss": float("inf")}
            studies.tell(question, HIDDEN[question.index], attributes=attributes)
        assert studies.ask(RATES) is None
    assert asked[0] == 4
    assert len(asked) <= 5
    assert answer.decision == Decision(index=3, robust=True, milder=2, stronger=4)
    assert (answer.dose, answer.milder_dose, answer.stronger_dose) == (0.25, 0.35, 0.1)
    assert answer.outcomes == {index: HIDDEN[index] for index in asked}
    assert answer.attributes[3]["trial"] == "key3"
    assert answer.attributes[3]["loss"] == "inf"


def test_the_studies_read_well_in_optuna_itself(tmp_path):
    database = tmp_path / "search.db"
    with DoseStudies(database, bisect_id="b1") as studies:
        while studies.answer(RATES) is None:
            question = studies.ask(RATES)
            assert question is not None
            studies.tell(question, HIDDEN[question.index])
    storage = optuna.storages.RDBStorage(f"sqlite:///{database}")
    study = optuna.load_study(study_name="b1/learning_rate", storage=storage)
    assert study.best_trial.user_attrs["label"] == "learning_rate ×0.25"
    assert {trial.state.name for trial in study.trials} == {"COMPLETE"}
    storage.remove_session()
    storage.engine.dispose()


def test_what_was_told_is_known_after_a_restart_and_not_asked_again(tmp_path):
    database = tmp_path / "search.db"
    with DoseStudies(database) as studies:
        first = studies.ask(RATES)
        assert first is not None
        studies.tell(first, "cured")
    with DoseStudies(database) as studies:
        assert studies.reopen() == 0
        second = studies.ask(RATES)
        assert second is not None
        assert second.index != first.index


def test_a_dose_released_or_left_open_is_asked_again(tmp_path):
    database = tmp_path / "search.db"
    with DoseStudies(database) as studies:
        first = studies.ask(RATES)
        assert first is not None
        studies.release(first)
        again = studies.ask(RATES)
        assert again is not None
        assert again.index == first.index
        with pytest.raises(ValueError, match="not taken"):
            studies.tell(first, "cured")
    with DoseStudies(database) as studies:
        once_more = studies.ask(RATES)
        assert once_more is not None
        assert once_more.index == first.index


def test_an_inconclusive_dose_is_left_out(tmp_path):
    with DoseStudies(tmp_path / "search.db") as studies:
        question = studies.ask(FP64)
        assert question is not None
        assert studies.ask(FP64) is None
        assert studies.answer(FP64) is None
        studies.tell(question, "inconclusive")
        answer = studies.answer(FP64)
        assert answer is not None
        assert answer.dose is None


def test_other_doses_than_those_stored_are_refused(tmp_path):
    with DoseStudies(tmp_path / "search.db") as studies:
        studies.ask(RATES)
        other = Ladder(variable="learning_rate", doses=(0.5,), original=1.0)
        with pytest.raises(TrackingError, match=r"'learning_rate' has the doses \[0.7.*bisect_id"):
            studies.ask(other)


def test_a_file_that_is_no_database_is_refused(tmp_path):
    path = tmp_path / "search.db"
    path.write_text("not a database, and longer than the hundred bytes of a header " * 9)
    with pytest.raises(TrackingError, match=r"search\.db: cannot be opened"):
        DoseStudies(path)


@pytest.mark.parametrize("doses", [12, 1])
def test_two_processes_at_once_never_take_the_same_dose(tmp_path, doses):
    ladder = Ladder(
        variable="learning_rate", doses=tuple(0.9**k for k in range(1, doses + 1)), original=1.0
    )
    hidden: list[Outcome] = ["cured" if k > 7 else "diverged" for k in range(doses)]
    database = tmp_path / "search.db"
    workers = [start(database, ladder=ladder, hidden=hidden) for _ in range(2)]
    for worker in workers:
        assert worker.stdout.readline() == "open\n"
    for worker in workers:
        go(worker)
    asked = Counter(index for worker in workers for index in finish(worker))
    assert set(asked.values()) == {1}
    assert decide({index: hidden[index] for index in asked}, count=doses) is not None
    with closing(sqlite3.connect(database)) as connection:
        states = dict(
            connection.execute("select state, count(*) from trials group by state").fetchall()
        )
    assert states.get("RUNNING", 0) == 0
    assert states["COMPLETE"] == len(asked)


def test_the_dose_of_a_killed_process_is_asked_again_but_not_that_of_a_living_one(tmp_path):
    database = tmp_path / "search.db"
    killed, living = (start(database, pause=600.0) for _ in range(2))
    taken = []
    for worker in (killed, living):
        assert worker.stdout.readline() == "open\n"
        go(worker)
        taken.append(int(worker.stdout.readline()))
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    try:
        with DoseStudies(database) as studies:
            assert studies.reopen() == 1
            question = studies.ask(RATES)
            assert question is not None
            assert question.index == taken[0]
            studies.tell(question, HIDDEN[question.index])
            following = studies.ask(RATES)
            assert following is None or following.index not in taken
    finally:
        living.kill()
        for worker in (killed, living):
            worker.communicate()


def test_an_answer_told_after_the_dose_was_freed_by_mistake_is_kept(tmp_path):
    database = tmp_path / "search.db"
    with DoseStudies(database) as slow:
        question = slow.ask(RATES)
        assert question is not None
        with DoseStudies(database) as other:
            assert other.reopen() == 1
        slow.tell(question, "cured", attributes={"trial": "abc"})
        following = slow.ask(RATES)
        assert following is not None
        assert following.index != question.index


def test_asking_and_telling_is_quick(tmp_path):
    with DoseStudies(tmp_path / "search.db") as studies:
        question = studies.ask(RATES)
        began = time.process_time()
        while question is not None:
            studies.tell(question, HIDDEN[question.index])
            question = studies.ask(RATES)
        assert time.process_time() - began < 3.0
