"""Runs jobs in the calling process, one after the other: no start-up cost, no protection.

For many small bisects in a row, as a benchmark makes them, starting workers costs more than the
replays. A job that ends the process ends the bisect too, which then goes on when it is called
again.
"""

from __future__ import annotations

import importlib
import json
import traceback
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from stabexp.bisection.workers import WorkerFailure


class Pool(Protocol):
    """Where trials run."""

    def submit(self, job: dict[str, Any]) -> int:
        """Queue a job and return its ticket."""

    def wait(self) -> tuple[int, dict[str, Any] | WorkerFailure]:
        """Return the ticket and the result of the next job that finishes."""


class InlinePool:
    """A pool without workers; a job runs when its result is waited for."""

    def __init__(self, factory: str, factory_args: Mapping[str, Any] | None = None) -> None:
        """Take the same factory as a `WorkerPool`; it is called at the first job."""
        self._factory, self._arguments = factory, dict(factory_args or {})
        self._pending: deque[tuple[int, str]] = deque()
        self._next_ticket = 0
        self._work: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pending.clear()

    def submit(self, job: dict[str, Any]) -> int:
        """Queue a job and return its ticket."""
        self._next_ticket += 1
        self._pending.append((self._next_ticket, json.dumps(job)))
        return self._next_ticket

    def wait(self) -> tuple[int, dict[str, Any] | WorkerFailure]:
        """Run the oldest queued job; return its ticket and its result.

        Raises:
            ValueError: If no job is queued.
        """
        if not self._pending:
            raise ValueError("no job is running; submit one first")
        ticket, job = self._pending.popleft()
        try:
            if self._work is None:
                module, _, name = self._factory.partition(":")
                self._work = getattr(importlib.import_module(module), name)(**self._arguments)
            # Through JSON, so that a result here is what a worker's would be.
            return ticket, json.loads(json.dumps(self._work(json.loads(job))))
        except Exception as error:
            what = "".join(traceback.format_exception_only(error)).strip()
            log = "\n".join("".join(traceback.format_exception(error)).splitlines()[-20:])
            return ticket, WorkerFailure(message=what, log=log)
