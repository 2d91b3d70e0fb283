"""Worker processes that stay: torch is imported once in each, and a death costs one job, no more.

A worker reads jobs from its stdin and writes results to what was its stdout, one JSON value a line;
whatever the job itself prints goes to the worker's log. It leads a process group of its own, so
that it can be ended together with all it started, and it ends itself when the parent is gone: then
its stdin closes, which a thread notices also in the middle of a job.
"""

from __future__ import annotations

import faulthandler
import importlib
import io
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait as readable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

Job = Callable[[dict[str, Any]], dict[str, Any]]

_ROOT = Path(__file__).parents[2]
_POLL_SECONDS = 0.2
_TAIL_LINES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFailure:
    """A job that gave no result: it raised, or its worker died."""

    message: str
    """One sentence: what was raised, or how the worker ended."""
    exit_code: int | None = None
    """The worker's exit status, minus the signal's number when killed; None when the job raised."""
    log: str = ""
    """The last lines of the traceback, or of what a dead worker wrote during the job."""


class WorkerPool:
    """Runs jobs in a fixed number of worker processes; use it in a `with` statement."""

    def __init__(
        self,
        count: int,
        factory: str,
        factory_args: Mapping[str, Any] | None = None,
        *,
        env: Mapping[str, str] | None = None,
        logs: Path | None = None,
    ) -> None:
        """Start the workers.

        Args:
            count: How many; further jobs wait for a free one.
            factory: "package.module:function", called once in each worker. It returns the function
                that does a job: a JSON-ready dict in, a JSON-ready dict out.
            factory_args: JSON-ready keyword arguments for the factory.
            env: Environment variables to set in the workers, such as OMP_NUM_THREADS.
            logs: Folder for "worker-0.log", …; a temporary one when None.

        Raises:
            ValueError: If `count` is below 1 or `factory` does not name a function.
        """
        if count < 1:
            raise ValueError(f"count: a pool needs at least 1 worker, not {count}")
        if not all(factory.partition(":")):
            raise ValueError(f"factory: expected 'package.module:function', found '{factory}'")
        self._temporary = tempfile.TemporaryDirectory(prefix="workers-") if logs is None else None
        folder = logs if logs is not None else Path(self._temporary.name if self._temporary else "")
        folder.mkdir(parents=True, exist_ok=True)
        hello = {"factory": factory, "args": dict(factory_args or {}), "path": sys.path}
        variables = {**os.environ, **(env or {})}
        paths = [variables.get("PYTHONPATH", ""), str(_ROOT)]
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        self._next_ticket = 0
        self._pending: deque[tuple[int, str]] = deque()
        self._workers: list[_Worker] = []
        try:
            for number in range(count):
                worker = _Worker(json.dumps(hello), variables, folder / f"worker-{number}.log")
                self._workers.append(worker)
                worker.start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def free(self) -> int:
        """How many workers have nothing to do."""
        idle = sum(worker.ticket is None for worker in self._workers)
        return max(0, idle - len(self._pending))

    def submit(self, job: dict[str, Any]) -> int:
        """Queue a job and return its ticket.

        Raises:
            TypeError: If the job is not JSON-ready.
        """
        ticket = self._next_ticket
        self._pending.append((ticket, json.dumps({"job": job})))
        self._next_ticket += 1
        self._assign()
        return ticket

    def wait(self) -> tuple[int, dict[str, Any] | WorkerFailure]:
        """Return the ticket and the result of the next job that finishes.

        Raises:
            ValueError: If no job is queued or running.
        """
        while True:
            self._assign()
            busy = [worker for worker in self._workers if worker.ticket is not None]
            if not busy:
                raise ValueError("no job is running; submit one first")
            readable([worker.results for worker in busy], _POLL_SECONDS)
            for worker in busy:
                if (finished := worker.finished()) is not None:
                    self._assign()
                    return finished

    def cancel(self, ticket: int) -> bool:
        """Drop a job, ending its worker when it runs; False when it has already finished."""
        for waiting in self._pending:
            if waiting[0] == ticket:
                self._pending.remove(waiting)
                return True
        for worker in self._workers:
            if worker.ticket == ticket:
                worker.end()
                return True
        return False

    def close(self) -> None:
        """End all workers and whatever they started, at once."""
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            worker.end()
        self._pending.clear()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _assign(self) -> None:
        for worker in self._workers:
            if self._pending and worker.ticket is None:
                worker.take(*self._pending.popleft())


class _Worker:
    """The parent's end of one worker process."""

    def __init__(self, hello: str, env: Mapping[str, str], log: Path) -> None:
        self.ticket: int | None = None
        """The job being done."""
        self._hello = hello
        self._env = env
        self._log = log
        self._log_start = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._received = b""
        self._line = ""
        """The job, as it was sent."""
        self._begun = False
        """Whether the process said that it has begun with the job."""
        self._used = False
        """Whether the process has done a job before."""

    @property
    def results(self) -> int:
        """The file descriptor results arrive on."""
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def start(self) -> None:
        """Start the process and tell it how to make its job function."""
        self._received, self._used = b"", False
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "stabexp.bisection.workers", str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._env,
                start_new_session=True,
            )
        self._send(self._hello)

    def take(self, ticket: int, line: str) -> None:
        """Hand over a job, starting the process again when it has died."""
        self._log_start = self._log.stat().st_size
        if self._process is None or _ended(self._process):
            self.end()
            self.start()
        self.ticket, self._line, self._begun = ticket, line, False
        self._send(line)

    def finished(self) -> tuple[int, dict[str, Any] | WorkerFailure] | None:
        """Return the ticket and what became of the job, None while it runs."""
        assert self._process is not None
        assert self.ticket is not None
        dead = _ended(self._process)  # Before reading: its last words may be the result.
        while readable([self.results], 0):
            if not (chunk := os.read(self.results, 1 << 20)):
                dead = True
                break
            self._received += chunk
        ticket = self.ticket
        while b"\n" in self._received:
            line, _, self._received = self._received.partition(b"\n")
            answer = json.loads(line)
            if "begun" in answer:
                self._begun = True
                continue
            self.ticket, self._used = None, True
            if "result" in answer:
                return ticket, answer["result"]
            if answer["final"]:
                self.end()
            return ticket, WorkerFailure(message=answer["error"], log=answer["log"])
        if not dead:
            return None
        lost_idle = self._used and not self._begun
        code = self.end()
        if lost_idle:  # It died before it saw the job, so the job is not to blame.
            self.take(ticket, self._line)
            return None
        return ticket, self._death(code)

    def kill(self) -> None:
        """Kill the process and all it started, without waiting."""
        if self._process is not None:
            # Its number is not free before it is waited for, so nobody else is hit.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> int:
        """Leave no process behind and return the exit code."""
        self.kill()
        self.ticket = None
        if self._process is None:
            return 0
        process, self._process = self._process, None
        code = process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):  # What it did not read any more.
                stream.close()
        return code

    def _send(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # It died; `finished` says so.
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def _death(self, code: int) -> WorkerFailure:
        names = {item.value: item.name for item in signal.Signals}
        how = f"exit code {code}" if code >= 0 else f"killed by {names.get(-code, -code)}"
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            text = log.read().decode(errors="replace")
        return WorkerFailure(
            message=f"the worker died ({how}); see {self._log}",
            exit_code=code,
            log="\n".join(text.splitlines()[-_TAIL_LINES:]),
        )


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Say whether a process has ended, without freeing its number as `poll` does."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def main() -> None:
    """Do jobs until the parent is gone: the worker's side."""
    parent = int(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    incoming = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(line_buffering=True)
    faulthandler.enable()
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(incoming, parent, lines), daemon=True).start()

    hello = json.loads(lines.get())
    sys.path.extend(path for path in hello["path"] if path not in sys.path)
    do: Job | None = None
    try:
        do = _make_job(hello["factory"], hello["args"])
        broken = ""
    except BaseException as error:
        broken = _failed(error, before=f"the factory {hello['factory']} raised ", final=True)
    while True:
        request = json.loads(lines.get())
        if do is None:
            print(broken, file=answers, flush=True)
            return  # The next job gets a new process, and the factory another chance.
        print('{"begun": true}', file=answers, flush=True)
        try:
            answer = json.dumps({"result": do(request["job"])})
        except BaseException as error:
            answer = _failed(error)
        print(answer, file=answers, flush=True)


def _make_job(factory: str, arguments: Mapping[str, Any]) -> Job:
    module, _, name = factory.partition(":")
    job: Job = getattr(importlib.import_module(module), name)(**arguments)
    return job


def _failed(error: BaseException, *, before: str = "", final: bool = False) -> str:
    """Return the answer for a job that raised; `final` when the worker ends after it."""
    trace = "".join(traceback.format_exception(error)).splitlines()
    what = "".join(traceback.format_exception_only(error)).strip()
    log = "\n".join(trace[-_TAIL_LINES:])
    return json.dumps({"error": before + what, "log": log, "final": final})


def _listen(incoming: int, parent: int, lines: queue.SimpleQueue[bytes]) -> None:
    """Pass on what the parent sends, and end everything when it is gone."""
    received = b""
    while True:
        if readable([incoming], 5 * _POLL_SECONDS):
            chunk = os.read(incoming, 1 << 20)
            if not chunk:
                break
            *complete, received = (received + chunk).split(b"\n")
            for line in complete:
                lines.put(line)
        elif os.getppid() != parent:
            break  # Some child of the parent still holds the pipe open.
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    main()
