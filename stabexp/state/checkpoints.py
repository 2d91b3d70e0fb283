"""Checkpoints are written beside training, survive a kill at any moment, and notice their damage.

A file is written under a temporary name, synced, renamed, and only then entered in the index
`checkpoints.jsonl`, one line each. So what the index names was complete; what has changed since
shows in the checksum. Nothing is removed before what replaces it is on the disk.

Only one process may write to a directory at a time; any number may read, also while it is written.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from stabexp.errors import CheckpointError
from stabexp.records import CheckpointInfo
from stabexp.state.checkpoint_index import INDEX, CheckpointIndex
from stabexp.state.durable_file import write_durably
from stabexp.state.hashing import state_hash
from stabexp.state.snapshot import Snapshot

_FORMAT = 1
_DAMAGED = "use an earlier checkpoint, or run again to make a new one"


class CheckpointStore:
    """The checkpoints of one run, in one directory."""

    def __init__(
        self,
        directory: Path,
        *,
        keep: int = 3,
        first: int = 0,
        on_error: Callable[[CheckpointError], None] | None = None,
    ) -> None:
        """Name the directory; nothing is created or cleaned before the first `save`.

        Args:
            directory: Where the checkpoints are.
            keep: How many of the last ones to keep. The first one, protected ones, and the
                newest finite one are kept besides.
            first: The step with which the run begins, which is not 0 where it goes on from another.
            on_error: Told, in the calling thread at the next `save`, `flush` or `close`, that a
                write failed; training goes on. Without it those calls raise the error.
        """
        if keep < 1:
            raise ValueError(f"keep: {keep} is too few; keep at least 1 checkpoint")
        self.directory = directory
        self.keep = keep
        self.first = first
        self.failure: CheckpointError | None = None
        """The last write that failed, None when all went well."""
        self._on_error = on_error
        self._unreported: CheckpointError | None = None
        self._pending: Future[None] | None = None
        self._pending_step: int | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._index = CheckpointIndex(directory)

    @classmethod
    def reader(cls, directory: Path) -> Self:
        """Return the checkpoints of another run, or of a process that may still be writing."""
        return cls(directory)

    def save(self, step: int, snapshot: Snapshot, *, finite: bool) -> None:
        """Write the world just before `step`, in the background; wait only for the previous write.

        Args:
            step: The step that runs next.
            snapshot: Is not changed, and must not be changed by the caller.
            finite: Whether every parameter and buffer is finite; see `Snapshot.finite`.

        Raises:
            CheckpointError: If the previous write failed and there is no `on_error`. This
                snapshot is being written all the same.
        """
        self._wait()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoints")
        error, self._unreported = self._unreported, None  # of the previous write, not of this one
        self._pending_step = step
        self._pending = self._thread.submit(self._write, step, snapshot, finite)
        self._report(error)

    def flush(self) -> None:
        """Return when everything saved is on the disk; raises as `save` does."""
        self._finish()

    def close(self) -> None:
        """Flush and end the background thread; a later `save` starts it again."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        self._finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def protect(self, *steps: int) -> None:
        """Keep the checkpoints of these steps, in place of those protected before.

        It is for the last good one, which moves on while a run is healthy.

        Raises:
            CheckpointError: If one was already removed, or never saved.
        """
        for step in steps:
            if step != self.pending:
                self._info(step)
        self._index.append_protection(steps)

    @property
    def pending(self) -> int | None:
        """The step whose checkpoint was handed over last and may still be being written."""
        return None if self._pending is None else self._pending_step

    def infos(self) -> list[CheckpointInfo]:
        """Return what is on the disk, by step; a write in progress is not part of it."""
        return self._index.infos()

    def load(self, step: int) -> Snapshot:
        """Read the world just before `step`.

        Raises:
            CheckpointError: If there is none, or its file is gone, torn or altered.
        """
        info = self._info(step)
        path = self._verified(info)
        try:
            payload: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # a complete file that torch cannot read: of another version
            raise CheckpointError(
                f"{path}: cannot be read with torch {torch.__version__}: {error}"
            ) from error
        if payload.get("format") != _FORMAT or payload.get("step") != step:
            raise CheckpointError(
                f"{path}: has format {payload.get('format')} and step {payload.get('step')}, "
                f"expected format {_FORMAT} and step {step}; was it written by another version?"
            )
        return Snapshot.from_payload(payload)

    def verify(self, step: int) -> None:
        """Read the file of a checkpoint against its checksum.

        Raises:
            CheckpointError: If there is none, or its file is gone, torn or altered.
        """
        self._verified(self._info(step))

    def newest_usable(
        self, at_or_before: int | None = None, *, finite_only: bool = False
    ) -> CheckpointInfo | None:
        """Return the latest checkpoint whose file is undamaged, None when there is none.

        Args:
            at_or_before: The latest step that will do; None takes any.
            finite_only: Pass over those with a non-finite parameter or buffer.
        """
        for info in reversed(self.infos()):
            late = at_or_before is not None and info.step > at_or_before
            if late or (finite_only and not info.finite):
                continue
            try:
                self._verified(info)
            except CheckpointError:
                continue
            return info
        return None

    def _info(self, step: int) -> CheckpointInfo:
        infos = self.infos()
        for info in infos:
            if info.step == step:
                return info
        there = ", ".join(str(info.step) for info in infos) or "none"
        raise CheckpointError(
            f"{self.directory}: no checkpoint of step {step}; there are those of steps: {there}"
        )

    def _verified(self, info: CheckpointInfo) -> Path:
        path = self.directory / info.file
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size != info.bytes:
                    raise CheckpointError(
                        f"{path}: torn: {size} bytes, {info.bytes} were written; {_DAMAGED}"
                    )
                if hashlib.file_digest(file, "sha256").hexdigest() != info.sha256:
                    raise CheckpointError(
                        f"{path}: altered: its checksum is not the one in {INDEX}; {_DAMAGED}"
                    )
        except OSError as error:
            raise CheckpointError(f"{path}: {error.strerror or error}; {_DAMAGED}") from error
        return path

    def _wait(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def _finish(self) -> None:
        self._wait()
        error, self._unreported = self._unreported, None
        self._report(error)

    def _report(self, error: CheckpointError | None) -> None:
        if error is None:
            return
        if self._on_error is None:
            raise error
        self._on_error(error)

    def _write(self, step: int, snapshot: Snapshot, finite: bool) -> None:
        try:
            self._index.open_for_writing()
            path = self._free_name(step)
            content = {"format": _FORMAT, "step": step, **snapshot.to_payload()}
            sha256, size = write_durably(path, content)
            info = CheckpointInfo(
                step=step,
                file=path.name,
                sha256=sha256,
                bytes=size,
                state_hash=state_hash(snapshot),
                finite=finite,
            )
            self._index.append(info)
            self._prune()
        except Exception as error:  # whatever it is, training goes on and is told
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            failure = CheckpointError(
                f"{self.directory}: the checkpoint of step {step} could not be written: {reason}; "
                "make room or check the directory. The earlier ones are untouched"
            )
            failure.__cause__ = error
            self.failure = self._unreported = failure

    def _free_name(self, step: int) -> Path:
        # Never over an existing file: the index still describes that one.
        number = 0
        while True:
            path = self.directory / f"step-{step:08d}{f'-{number}' if number else ''}.pt"
            if not path.exists():
                return path
            number += 1

    def _prune(self) -> None:
        written = self._index.in_order_written()
        kept = {0, self.first, *self._index.protected()}
        kept |= {info.step for info in written[-self.keep :]}
        kept |= {info.step for info in [info for info in written if info.finite][-1:]}
        for info in written:
            if info.step not in kept:
                self._index.append_removal(info)
        self._index.delete_unlisted()
