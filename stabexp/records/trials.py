"""One replay: what it was to do, and what it showed."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from stabexp.records.plain import to_json
from stabexp.records.steps import Divergence

Role = Literal["control", "placebo", "dose", "test", "data", "scan", "reversal", "proof", "manual"]
"""Why a trial was run.

control: changes nothing · placebo: a change too small to be a remedy · dose: one variable changed ·
test: a suspected mechanism switched off · data: other samples in place of suspected ones ·
scan: no update at all, every sample alone · reversal: the cure, then the original value put back ·
proof: the fix, on past the horizon · manual: asked for by hand.
"""

Outcome = Literal["cured", "delayed", "diverged", "stalled", "inconclusive"]
"""What became of a trial.

cured: reached its horizon and still learned · stalled: reached it without learning · delayed:
diverged clearly later than the control · diverged: diverged at about the same distance ·
inconclusive: could not be run to a judgement (the reason is in `TrialRecord.note`).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing a trial does differently: an intervention by its YAML name, and how strong."""

    variable: str
    dose: float | int | str
    """×0.5 of the rate, 25 steps of warmup, a norm, a precision name, ×4 of the batch, …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSpec:
    """One replay to run: from which step, to which step, with what changed, and why."""

    role: Role
    changes: tuple[Change, ...] = ()
    from_step: int
    """The checkpoint to fork from; the first replayed step."""
    until_step: int
    """One past the last step to replay."""
    from_trial: str = ""
    """Key of the trial whose own checkpoint is forked (reversals); empty: the diverged run's."""
    save_at: tuple[int, ...] = ()
    """Steps before which the trial saves its own state, for a reversal or a proof to start from."""
    patch: Mapping[str, Any] = field(default_factory=dict)
    """Dotted experiment keys set before the run is built; such a trial starts at step 0."""
    instruments: tuple[str, ...] = ()
    """What watches the replay closely, by name."""
    reason: str = ""
    """One sentence for people; not part of the key."""

    @property
    def key(self) -> str:
        """12 hexadecimal digits that name this replay: equal specs give equal replays."""
        content = to_json(self)
        del content["reason"], content["save_at"]
        if not self.instruments:
            del content["instruments"]
        text = json.dumps(content, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def variable(self) -> str | None:
        """The variable changed, or None when nothing is."""
        return self.changes[0].variable if self.changes else None

    @property
    def dose(self) -> float | int | str | None:
        """How strongly, or None when nothing is changed."""
        return self.changes[0].dose if self.changes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """What one replay showed."""

    spec: TrialSpec
    outcome: Outcome
    last_step: int
    """Last step that was replayed; `spec.from_step - 1` when none was."""
    divergence: Divergence | None = None
    start_loss: float = float("nan")
    """Median loss of the first replayed steps."""
    end_loss: float = float("nan")
    """Median loss of the last replayed steps."""
    mismatch: int | None = None
    """Control only: first step whose record differs from the original run's, None when equal."""
    mismatch_field: str = ""
    """Control only: what differed there first ("loss", "digest", …)."""
    mismatch_tensor: str = ""
    """Control only: the first tensor known to differ, by its dotted name; empty when unknown."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Summary figures used as evidence (see `bisection.evidence`)."""
    findings: Mapping[str, Any] = field(default_factory=dict)
    """What the instruments found: instrument name → JSON-ready values."""
    seconds: float = 0.0
    number: int = -1
    """Order in which the bisect finished its trials, from 0."""
    name: str = ""
    """Short name people see: "03 learning_rate ×0.5: cured"."""
    directory: str = ""
    """The trial's directory below the bisect's, with its own step log."""
    note: str = ""

    @property
    def steps(self) -> int:
        """How many steps were replayed."""
        return self.last_step + 1 - self.spec.from_step

    @property
    def cost(self) -> int:
        """How many of the run's own steps it was worth: single samples cost a part of a step."""
        return math.ceil(max(0.0, self.metrics.get("equivalent_steps", float(self.steps))))
