"""Jobs in the calling process: in order, through JSON, and a failure costs one job."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stabexp.bisection.inline_pool import InlinePool
from stabexp.bisection.workers import WorkerFailure

JOBS = """
made = []


def factory(base=0):
    made.append(base)
    return lambda job: globals()[job["do"]](job, base)


def add(job, base):
    return {"sum": base + job["x"], "made": len(made)}


def echo(job, base):
    return {"given": job["what"]}


def tuples(job, base):
    return {"shape": (2, 3)}


def raises(job, base):
    raise ValueError("the loss is a banana")


def odd(job, base):
    return {"x": object()}


def broken():
    raise RuntimeError("no such model")
"""


@pytest.fixture
def jobs(tmp_path, monkeypatch):
    """Put a module with the jobs above on the path; return its factory."""
    (tmp_path / "inline_jobs.py").write_text(JOBS, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield "inline_jobs:factory"
    sys.modules.pop("inline_jobs", None)


def test_jobs_run_in_order_and_the_factory_is_called_once(jobs):
    with InlinePool(jobs, {"base": 10}) as pool:
        tickets = [pool.submit({"do": "add", "x": x}) for x in range(3)]
        found = [pool.wait() for _ in tickets]
    assert [ticket for ticket, _ in found] == tickets
    assert [result for _, result in found] == [{"sum": 10 + x, "made": 1} for x in range(3)]


def test_nothing_runs_and_nothing_is_imported_before_a_result_is_waited_for(jobs):
    with InlinePool(jobs) as pool:
        pool.submit({"do": "raises"})
        assert "inline_jobs" not in sys.modules
    with pytest.raises(ValueError, match="submit one first"):
        pool.wait()


def test_a_job_is_what_it_was_when_it_was_submitted_and_a_result_what_a_worker_would_send(jobs):
    job = {"do": "echo", "what": [1]}
    with InlinePool(jobs) as pool:
        pool.submit(job)
        job["what"].append(2)
        pool.submit({"do": "tuples"})
        assert pool.wait()[1] == {"given": [1]}
        assert pool.wait()[1] == {"shape": [2, 3]}


@pytest.mark.parametrize(
    ("do", "says"),
    [("raises", "ValueError: the loss is a banana"), ("odd", "not JSON serializable")],
)
def test_a_job_that_fails_costs_that_job_only_and_says_where(jobs, do, says):
    with InlinePool(jobs) as pool:
        pool.submit({"do": do})
        pool.submit({"do": "add", "x": 1})
        failed, done = pool.wait()[1], pool.wait()[1]
    assert isinstance(failed, WorkerFailure)
    assert says in failed.message
    assert failed.exit_code is None
    assert "inline_pool.py" in failed.log
    assert done == {"sum": 1, "made": 1}


def test_a_factory_that_fails_is_the_failure_of_every_job(jobs):
    with InlinePool(jobs.replace("factory", "broken")) as pool:
        for _ in range(2):
            pool.submit({"do": "add", "x": 1})
            failed = pool.wait()[1]
            assert isinstance(failed, WorkerFailure)
            assert failed.message == "RuntimeError: no such model"


def test_an_error_of_ours_is_told_by_its_full_name_so_that_it_can_be_raised_again(tmp_path):
    # In a process of its own: what a job leaves behind must not change this one.
    code = (
        "from stabexp.bisection.inline_pool import InlinePool\n"
        "pool = InlinePool('stabexp.experiment:replay_job', {'directory': 'nowhere'})\n"
        "pool.submit({'survey': True})\n"
        "print(pool.wait()[1].message)\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(root)},
    )
    assert "stabexp.errors." in done.stdout
