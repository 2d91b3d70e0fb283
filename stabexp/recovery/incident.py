"""How a run ended before its end: diverged, out of memory, killed, or an error of its own code."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stabexp.records import Divergence, IncidentKind

_MEMORY = re.compile(
    r"OutOfMemoryError|CUDA out of memory|can't allocate memory|not enough memory|"
    r"\bMemoryError\b|std::bad_alloc|[Cc]annot allocate memory|CUBLAS_STATUS_ALLOC_FAILED"
)
"""What torch and the C library say when memory runs out, on CPUs and GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """What happened to a run."""

    kind: IncidentKind
    step: int
    """The step in which it happened."""
    message: str

    @property
    def told(self) -> str:
        """What happened, in one sentence."""
        happened = {
            "diverged": "diverged",
            "out_of_memory": "ran out of memory",
            "killed": "was killed",
            "raised": "raised an error",
        }[self.kind]
        return f"{happened} at step {self.step}: {self.message}"


def incident_of(
    *, status: str, divergence: Divergence | None, error: str, last_step: int
) -> Incident | None:
    """Return what happened to a run, None when it trained to its end.

    Args:
        status: How it ended, as its directory says: FINISHED, FAILED, KILLED or RUNNING.
        divergence: What a detector found.
        error: The error that ended it, as text; empty when none was recorded.
        last_step: The last recorded step, -1 for none.
    """
    if divergence is not None:
        return Incident(kind="diverged", step=divergence.detected, message=divergence.message)
    if status == "FINISHED":
        return None
    if is_out_of_memory(error):
        return Incident(kind="out_of_memory", step=last_step + 1, message=_first_line(error))
    if status == "FAILED" and error:
        return Incident(kind="raised", step=last_step + 1, message=_first_line(error))
    message = f"the process ended after step {last_step} without a word of its own"
    return Incident(kind="killed", step=last_step + 1, message=message)


def is_out_of_memory(error: str) -> bool:
    """Return whether an error's text says that memory ran out."""
    return bool(_MEMORY.search(error))


def _first_line(error: str) -> str:
    return error.strip().splitlines()[0][:300] if error.strip() else ""
