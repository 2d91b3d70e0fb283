"""What a recovery did about a run that had crashed, action by action, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

IncidentKind = Literal["diverged", "out_of_memory", "killed", "raised"]
"""How a run ended before its end: a detector fired · memory ran out · the process was killed or
interrupted · its code raised an error."""

RemedyName = Literal[
    "plain_resume",
    "verdict_fix",
    "smaller_micro_batch",
    "activation_checkpointing",
    "safe_operation",
    "keep_optimizer_state",
    "replace_samples",
    "hold_rate",
    "no_weight_decay",
    "wider_format",
    "clip_gradients",
    "lower_rate",
    "fresh_optimizer",
    "conservative",
    "restart",
]
"""What is done differently from the checkpoint on.

plain_resume: nothing · verdict_fix: what a bisect proved · smaller_micro_batch: the same samples
per update in smaller parts · activation_checkpointing: activations computed again instead of kept ·
safe_operation: an operation kept inside its domain · keep_optimizer_state: what emptied it is
undone · replace_samples: others in place of bad ones · hold_rate: the rate no higher than it was ·
no_weight_decay · wider_format: float32 · clip_gradients · lower_rate · fresh_optimizer: half the
rate, clipping, moments emptied, in float32 · conservative: a tenth of the rate, clipping, losses
above all healthy ones without a gradient · restart: from step 0.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryAction:
    """One rollback: a run that went on from an earlier state with something done differently."""

    number: int
    """From 1, over the whole recovery."""
    remedy: RemedyName
    why: str
    """The evidence, in one or two sentences."""
    crashed_run: str
    """The run whose crash it answers."""
    run_id: str
    """The run that went on; the crashed one itself where nothing was changed."""
    from_step: int
    """The checkpoint it started from; its first step."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Experiment keys that differ from the crashed run's."""
    forgets: bool = False
    """Whether the optimizer's state was emptied at the fork, once."""
    checks: tuple[str, ...] = ()
    """What was checked of the restored state, one sentence each."""
    window: tuple[int, int] = (0, 0)
    """First step of the danger window and one past its last; (0, 0) without one."""
    outcome: Literal["running", "trained_to_the_end", "did_not_learn", "crashed_again"] = "running"
    note: str = ""
    """How it ended, in one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What became of a crashed run."""

    run_id: str
    status: Literal["running", "recovered", "gave_up"]
    incident: IncidentKind
    what: str
    """What had happened, in one sentence."""
    actions: tuple[RecoveryAction, ...] = ()
    """Every rollback, in order; the last one is the one that counts."""
    verdict: str = ""
    """The cause that a bisect named; empty where none was asked."""
    loss: float = float("nan")
    """Median of the last ten losses."""
    steps: int = 0
    """Updates made in all, up to where it ended."""
    replayed_steps: int = 0
    """Steps that trials replayed to choose remedies, which no run went on from."""
    summary: str = ""
    next_command: str = ""
    """What to type next."""

    @property
    def remedy(self) -> RemedyName | None:
        """What recovered it, None when nothing did."""
        return self.actions[-1].remedy if self.status == "recovered" and self.actions else None

    @property
    def rollbacks(self) -> int:
        """How often training went back to an earlier state."""
        return len(self.actions)

    @property
    def final_run(self) -> str:
        """The run that holds the result."""
        return self.actions[-1].run_id if self.actions else self.run_id
