"""The nouns of the project: what a step showed, what a trial did, what the verdict says.

All of them are frozen and hold plain values, so they can be written to a file, read back by another
version and compared. Nothing here computes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

Pattern = Literal[
    "sudden_jump", "exponential_growth", "oscillating_divergence", "plateau", "unclear"
]
"""How the loss left its healthy range (source rows A2, C1)."""

Role = Literal["control", "placebo", "dose", "data", "reversal", "proof"]
"""Why a trial was run.

control: changes nothing · placebo: a change too small to be a remedy · dose: one variable changed ·
data: other samples in place of those the crash began with ·
reversal: the cure, then the original value put back · proof: the final fix as a user would run it.
"""

Outcome = Literal["cured", "delayed", "diverged", "stalled", "inconclusive"]
"""What became of a trial.

cured: reached its horizon and still learned · stalled: reached it without learning · delayed:
diverged clearly later than the control · diverged: diverged at about the same distance ·
inconclusive: could not be run to a judgement (the reason is in `TrialRecord.note`).
"""

Cause = Literal[
    "learning_rate",
    "warmup",
    "clip_norm",
    "precision",
    "batch_size",
    "not_reproduced",
    "marginal",
    "inconclusive",
]
"""What a verdict can say."""

VARIABLES: tuple[str, ...] = ("learning_rate", "warmup", "clip_norm", "precision", "batch_size")
"""The variables a bisect changes, one at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """What one optimizer update showed. Numbers may be NaN or ±Inf and are kept exactly."""

    step: int
    """Index of the update, from 0."""
    time: float
    """Unix seconds at the end of the step."""
    loss: float
    """Mean loss over the step's micro-batches, before the update."""
    lr: float
    """Learning rate of the first parameter group, as used in the update."""
    grad_norm: float
    """L2 norm over all gradients, unscaled, before clipping."""
    clip_coefficient: float = 1.0
    """Factor the gradients were multiplied by when clipping; 1.0 when they were not."""
    update_ratio: float = float("nan")
    """||after - before|| / ||before|| over the sampled parameters; no unit."""
    param_norm: float = float("nan")
    """L2 norm over all trainable parameters after the update."""
    loss_scale: float | None = None
    """Loss scale of the gradient scaler, None without one."""
    skipped: bool = False
    """True when the scaler, or an intervention, left this update out."""
    nonfinite_grads: int = 0
    """Parameters whose gradient holds a non-finite value."""
    nonfinite_params: int = 0
    """Parameters that hold a non-finite value after the update."""
    position: int = 0
    """Samples consumed before this step, over all passes."""
    batch_size: int = 0
    """Samples used in this step, over all micro-batches."""
    sample_ids: tuple[int, ...] = ()
    """Dataset indices used in this step, in order."""
    seconds: float = float("nan")
    """Wall time of the step, data loading included."""
    digest: str = ""
    """16 hexadecimal digits over the bits of all parameters after the update and of the loss."""
    layers: Mapping[str, Mapping[str, float]] | None = None
    """At a cadence: layer name → {"grad_norm": …, "weight_norm": …}."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What further monitors measured, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """A detector's finding: the run left its healthy range and stayed out of it."""

    detector: str
    detected: int
    """Step at which the detector was sure."""
    onset: int
    """First step that looked wrong, walking back from `detected`."""
    pattern: Pattern
    value: float
    """The measurement that crossed the limit."""
    limit: float
    message: str
    """One sentence with the figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointInfo:
    """One saved state: the world just before step `step` runs."""

    step: int
    file: str
    """File name inside the run's checkpoints directory."""
    sha256: str
    bytes: int
    state_hash: str
    """Hash over all state that decides the next step, independent of the file format."""
    finite: bool
    """Whether every parameter and buffer was finite."""


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
    save_at: int | None = None
    """Step before which the trial saves a checkpoint of its own, for a reversal to start from."""
    patch: Mapping[str, Any] = field(default_factory=dict)
    """Dotted experiment keys set before the run is built (proof trials only)."""
    reason: str = ""
    """One sentence for people; not part of the key."""

    @property
    def key(self) -> str:
        """12 hexadecimal digits that name this replay: equal specs give equal replays."""
        content = to_json(self)
        del content["reason"], content["save_at"]
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
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Summary figures used as evidence (see `bisection.evidence`)."""
    seconds: float = 0.0
    number: int = -1
    """Order in which the bisect finished its trials, from 0."""
    name: str = ""
    """Short name people see: "03 learning_rate ×0.5 cured"."""
    directory: str = ""
    """The trial's directory below the bisect's, with its own step log."""
    note: str = ""

    @property
    def steps(self) -> int:
        """How many steps were replayed."""
        return self.last_step + 1 - self.spec.from_step


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One node of the decision tree as it was walked: question, answer, and what supports it."""

    node: str
    """Short name of the node, e.g. "control"."""
    question: str
    answer: str
    """"yes", "no", or a short phrase."""
    detail: str
    """One or two sentences with the figures."""
    trials: tuple[str, ...] = ()
    """Keys of the trials that support the answer."""
    decisive: bool = False
    """True for the node at which the verdict fell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cure:
    """The mildest robust cure of one variable, as its dose ladder found it."""

    variable: str
    dose: float | int | str
    original: float | int | str | None
    """The value in the diverged run, in the dose's terms (1.0 for a factor)."""
    stronger_dose: float | int | str | None
    """The next stronger dose, which also cures; None when `dose` is the strongest."""
    milder_dose: float | int | str | None
    """The next milder dose, which does not cure; None when `dose` is the mildest."""
    robust: bool
    trial: str
    """Key of the curing trial."""
    removed: float
    """Share of the healthy run's update size that the change takes away, 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuledOut:
    """A variable that is not the cause, and how that is known."""

    variable: str
    why: str
    masker: bool = False
    """True when the variable cures the symptom all the same."""
    trials: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Why the run diverged, how sure that is, and what to change."""

    run_id: str
    bisect_id: str
    cause: Cause
    confidence: float
    """0 to 1: how often verdicts with this evidence are right."""
    summary: str
    """The verdict in one sentence."""
    path: tuple[Evidence, ...]
    """The decision tree as walked, root first."""
    cures: tuple[Cure, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()
    fix: Mapping[str, Any] = field(default_factory=dict)
    """Experiment keys to change, dotted; empty when there is no fix to offer."""
    fix_proved: bool = False
    """True when the patched experiment was itself run, passed the horizon and learned."""
    divergence: Divergence
    good_step: int
    """Step of the last good checkpoint."""
    telemetry: str = ""
    """What the step records alone suggested, before any replay: the second opinion."""
    trials: int = 0
    replayed_steps: int = 0
    crash_steps: int = 0
    """Steps from the start of the run to the divergence."""
    seconds: float = 0.0
    next_command: str = ""
    """What to type next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What became of a run."""

    run_id: str
    directory: Path
    status: Literal["finished", "diverged"]
    steps: int
    """Updates made, in all."""
    final_loss: float
    divergence: Divergence | None
    seconds: float
    delivered: bool
    """Whether MLflow has received everything; if not, `stabexp sync` sends the rest later."""
    tracking_uri: str
    notices: tuple[str, ...] = ()
    """What did not go as planned without ending the run, one sentence each."""


_T = TypeVar("_T")


_adapters: dict[type, Any] = {}


def _adapter(kind: type) -> Any:
    from pydantic import TypeAdapter

    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def to_json(record: Any) -> dict[str, Any]:
    """Return a record as JSON-ready values; NaN and ±Inf become "nan", "inf", "-inf"."""
    plain: dict[str, Any] = _plain(dataclasses.asdict(record))
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def from_json(kind: type[_T], data: Mapping[str, Any]) -> _T:
    """Return a record of `kind` from what `to_json` gave; unknown keys are ignored.

    Raises:
        pydantic.ValidationError: If a field is missing or has the wrong type.
    """
    record: _T = _adapter(kind).validate_python(data)
    return record
