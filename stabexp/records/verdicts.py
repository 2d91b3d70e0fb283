"""What a bisect found out: the cause, the path to it, the fix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from stabexp.records.recoveries import Recovery
from stabexp.records.steps import Divergence

Cause = Literal[
    "learning_rate",
    "warmup",
    "clip_norm",
    "precision",
    "batch_size",
    "data",
    "schedule",
    "optimizer_state",
    "initialisation",
    "weight_decay",
    "loss_function",
    "implementation",
    "not_learning",
    "overfitting",
    "joint",
    "not_reproduced",
    "marginal",
    "inconclusive",
]
"""What a verdict can say."""

FAMILIES: dict[str, str] = {
    "learning_rate": "step size",
    "warmup": "step size",
    "clip_norm": "step size",
    "batch_size": "step size",
    "schedule": "step size",
    "optimizer_state": "step size",
    "precision": "numerics",
    "loss_function": "numerics",
    "implementation": "numerics",
    "initialisation": "model",
    "weight_decay": "model",
    "not_learning": "model",
    "overfitting": "model",
    "data": "data",
    "joint": "joint",
    "not_reproduced": "none",
    "marginal": "none",
    "inconclusive": "none",
}
"""Cause → its family: causes within one are hard to tell apart, and share their cures."""

BLAMELESS = ("not_reproduced", "marginal", "inconclusive")
"""Verdicts that blame nothing."""

VARIABLES: tuple[str, ...] = ("learning_rate", "warmup", "clip_norm", "precision", "batch_size")
"""The variables that have a ladder of doses, and are changed one at a time."""


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
class Culprit:
    """What exactly is at fault, where a cause is more than a setting."""

    kind: str
    """The reason's or the broken rule's short name: "log_of_zero", "double_softmax", "samples"."""
    place: str
    """Where: "train.py:31", a module's or parameter's name, "samples 12, 55"."""
    detail: str
    """One or two sentences with the figures."""
    remedy: str = ""
    """What to change, in a sentence."""
    code: str = ""
    """The source line, where there is one."""
    samples: tuple[int, ...] = ()
    """Sample ids, where samples are at fault."""
    modules: tuple[str, ...] = ()
    """Modules that must be treated otherwise, where only some must."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """A cause that is still possible when no verdict could be reached, and what speaks for it."""

    cause: Cause
    why: str
    weight: float
    """0 to 1, relative to the others; not a probability of being right."""


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
    """True when the run with the fix passed the horizon, went on and learned."""
    culprit: Culprit | None = None
    """What exactly is at fault, where a cause is more than a setting."""
    point_of_no_return: int | None = None
    """Newest checkpoint from which the fix still works, when the last good one was too late."""
    hypotheses: tuple[Hypothesis, ...] = ()
    """What is still possible, most plausible first; empty when a cause is named."""
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

    @property
    def family(self) -> str:
        """The family of causes the verdict belongs to."""
        return FAMILIES[self.cause]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What became of a run."""

    run_id: str
    directory: Path
    status: Literal["finished", "diverged", "failed"]
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
    verdict: Verdict | None = None
    """Why it diverged, where `on_divergence: bisect` asked for it."""
    recovery: Recovery | None = None
    """What was done about it, where `on_divergence: recover` asked for it."""
