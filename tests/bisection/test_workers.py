"""Workers stay alive between jobs, cost one job when they die, and never outlive the parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from stabexp.bisection.workers import WorkerFailure, WorkerPool

ROOT = Path(__file__).parents[2]

JOBS = """
import ctypes, os, signal, subprocess, sys, time
made = 0

def factory(base=0):
    global made
    made += 1
    def job(request):
        print("a print of user code", request["do"])
        os.write(1, b"bytes to file descriptor 1\\n")
        return {name: value for name, value in globals()[request["do"]](request, base).items()}
    return job

def add(request, base): return {"sum": base + request["x"], "pid": os.getpid(), "made": made}
def echo(request, base): return {"text": request["text"]}
def env(request, base): return {"threads": os.environ.get("OMP_NUM_THREADS")}
def read_stdin(request, base): return {"read": sys.stdin.read()}
def raises(request, base): raise ValueError("the loss is a banana")
def leaves(request, base): sys.exit("enough")
def odd_result(request, base): return {"x": object()}
def kill(request, base): print("about to die", flush=True); os.kill(os.getpid(), signal.SIGKILL)
def vanish(request, base): print("goodbye", flush=True); os._exit(7)
def segfault(request, base): ctypes.string_at(0)
def sleep(request, base): time.sleep(request["seconds"]); return {"slept": request["seconds"]}

def forever(request, base):
    if request.get("child"):
        child = subprocess.Popen(["sleep", "600"])
        with open(request["child"], "w") as file:
            file.write(str(child.pid))
    with open(request["mark"], "w") as file:
        file.write(str(os.getpid()))
    while True:
        pass

def broken(): raise RuntimeError("no such model")
"""

PARENT = """
import os, sys, time
from stabexp.bisection.workers import WorkerPool
if __name__ == "__main__":
    with WorkerPool(2, "jobs_for_tests:factory") as pool:
        pool.submit({"do": "forever", "mark": sys.argv[1], "child": sys.argv[2]})
        if sys.argv[3] == "forks" and os.fork() == 0:
            time.sleep(600)  # Like a data loader's process: it holds the workers' pipes open.
        pool.wait()
"""


@pytest.fixture
def env(tmp_path):
    """The environment in which workers find the jobs."""
    (tmp_path / "jobs_for_tests.py").write_text(JOBS)
    return {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "3"}


@pytest.fixture
def pool(env, tmp_path):
    with WorkerPool(
        1, "jobs_for_tests:factory", {"base": 40}, env=env, logs=tmp_path / "logs"
    ) as pool:
        yield pool


def result(pool: WorkerPool, do: str, **request):
    ticket = pool.submit({"do": do, **request})
    finished, answer = pool.wait()
    assert finished == ticket
    return answer


def wait_until(true, seconds=20.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "took too long"
        time.sleep(0.02)


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def number_in(path: Path) -> int:
    wait_until(lambda: path.exists() and path.read_text())
    return int(path.read_text())


def test_a_worker_does_one_job_after_another_in_one_process_made_once(pool):
    first = result(pool, "add", x=1)
    second = result(pool, "add", x=2)
    assert (first["sum"], second["sum"]) == (41, 42)
    assert first["pid"] == second["pid"] != os.getpid()
    assert second["made"] == 1


def test_prints_of_a_job_go_to_the_log_and_do_not_disturb(pool, tmp_path):
    assert result(pool, "add", x=1)["sum"] == 41
    log = (tmp_path / "logs" / "worker-0.log").read_text()
    assert "a print of user code add" in log
    assert "bytes to file descriptor 1" in log


def test_a_job_that_reads_its_standard_input_finds_it_empty(pool):
    assert result(pool, "read_stdin") == {"read": ""}


def test_large_jobs_and_results_pass(pool):
    text = "ä\n" * 500_000
    assert result(pool, "echo", text=text)["text"] == text


def test_the_environment_is_the_pools(pool):
    assert result(pool, "env") == {"threads": "3"}


@pytest.mark.parametrize(
    ("do", "message"),
    [
        ("raises", "ValueError: the loss is a banana"),
        ("leaves", "SystemExit: enough"),
        ("odd_result", "TypeError: Object of type object is not JSON serializable"),
    ],
)
def test_a_job_that_raises_fails_alone(pool, do, message):
    pid = result(pool, "add", x=1)["pid"]
    failure = result(pool, do)
    assert isinstance(failure, WorkerFailure)
    assert (failure.message, failure.exit_code) == (message, None)
    assert failure.log.splitlines()[-1] == message
    assert result(pool, "add", x=1)["pid"] == pid


@pytest.mark.parametrize(
    ("do", "code", "how", "log"),
    [
        ("kill", -signal.SIGKILL, "killed by SIGKILL", "about to die"),
        ("vanish", 7, "exit code 7", "goodbye"),
        ("segfault", -signal.SIGSEGV, "killed by SIGSEGV", "Segmentation fault"),
    ],
)
def test_a_worker_that_dies_takes_one_job_along_and_is_replaced(pool, do, code, how, log):
    pid = result(pool, "add", x=1)["pid"]
    failure = result(pool, do)
    assert isinstance(failure, WorkerFailure)
    assert failure.exit_code == code
    assert how in failure.message
    assert log in failure.log
    assert "code add" not in failure.log
    after = result(pool, "add", x=1)
    assert after["sum"] == 41
    assert after["pid"] != pid


def test_a_worker_that_dies_between_jobs_is_replaced_unnoticed(pool):
    pid = result(pool, "add", x=1)["pid"]
    os.kill(pid, signal.SIGKILL)
    assert result(pool, "add", x=1)["sum"] == 41


def test_two_workers_work_at_the_same_time_and_the_quicker_result_comes_first(env):
    with WorkerPool(2, "jobs_for_tests:factory", env=env) as pool:
        slow = pool.submit({"do": "sleep", "seconds": 1.0})
        quick = [pool.submit({"do": "sleep", "seconds": 0.05}) for _ in range(3)]
        assert pool.free == 0
        order = [pool.wait()[0] for _ in range(4)]
        assert order == [*quick, slow]
        assert pool.free == 2


def test_the_death_of_one_worker_leaves_the_other_job_alone(env):
    with WorkerPool(2, "jobs_for_tests:factory", env=env) as pool:
        good = pool.submit({"do": "sleep", "seconds": 0.5})
        bad = pool.submit({"do": "kill"})
        answers = dict([pool.wait(), pool.wait()])
        assert answers[good] == {"slept": 0.5}
        assert isinstance(answers[bad], WorkerFailure)


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("jobs_for_tests:broken", "jobs_for_tests:broken raised RuntimeError: no such model"),
        ("no_such_module:factory", "raised ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_a_factory_that_raises_fails_every_job_and_says_why(env, factory, message):
    with WorkerPool(1, factory, env=env) as pool:
        for _ in range(2):
            failure = result(pool, "add", x=1)
            assert isinstance(failure, WorkerFailure)
            assert message in failure.message


def test_a_cancelled_job_ends_at_once_whether_it_runs_or_waits(pool, tmp_path):
    running = pool.submit({"do": "forever", "mark": str(tmp_path / "mark")})
    waiting = pool.submit({"do": "add", "x": 1})
    last = pool.submit({"do": "add", "x": 2})
    pid = number_in(tmp_path / "mark")
    assert pool.cancel(waiting)
    assert pool.cancel(running)
    assert not runs(pid)
    ticket, answer = pool.wait()
    assert (ticket, answer["sum"]) == (last, 42)
    assert not pool.cancel(last)


def test_wrong_arguments_are_refused_with_a_remedy(env):
    with pytest.raises(ValueError, match="at least 1 worker, not 0"):
        WorkerPool(0, "jobs_for_tests:factory", env=env)
    with pytest.raises(ValueError, match=r"expected 'package.module:function', found 'jobs'"):
        WorkerPool(1, "jobs", env=env)


def test_waiting_for_nothing_and_a_job_that_is_not_json_are_refused(pool):
    with pytest.raises(ValueError, match="submit one first"):
        pool.wait()
    with pytest.raises(TypeError):
        pool.submit({"do": object()})
    assert result(pool, "add", x=1)["sum"] == 41


def test_closing_ends_a_busy_worker_and_what_it_started(env, tmp_path):
    mark, child = tmp_path / "mark", tmp_path / "child"
    with WorkerPool(1, "jobs_for_tests:factory", env=env) as pool:
        pool.submit({"do": "forever", "mark": str(mark), "child": str(child)})
        pids = [number_in(mark), number_in(child)]
        assert all(map(runs, pids))
        began = time.monotonic()
    assert time.monotonic() - began < 2
    wait_until(lambda: not any(map(runs, pids)), seconds=2)


@pytest.mark.parametrize(
    ("how", "forks"),
    [
        pytest.param(signal.SIGINT, "", id="Ctrl-C"),
        pytest.param(signal.SIGTERM, "", id="terminated"),
        pytest.param(signal.SIGKILL, "", id="killed"),
        pytest.param(signal.SIGKILL, "forks", id="killed while a forked child lives on"),
    ],
)
def test_when_the_parent_is_gone_no_worker_is_left_not_even_in_a_job(env, tmp_path, how, forks):
    mark, child = tmp_path / "mark", tmp_path / "child"
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(mark), str(child), forks],
        env={**os.environ, **env, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        wait_until(lambda: len(children.read_text().split()) == (3 if forks else 2))
        pids = [number_in(mark), number_in(child), *map(int, children.read_text().split()[:2])]
        parent.send_signal(how)
        assert parent.wait(timeout=5) != 0
        wait_until(lambda: not any(map(runs, pids)), seconds=5)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()
