"""What a comparison of two runs found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from stabexp.bisection.key_search import Finding
from stabexp.bisection.tensor_difference import TensorDifference
from stabexp.comparison.configuration import KeyDifference


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDifference:
    """The first step whose record differs in a bit, and the first field that does."""

    step: int
    field: str
    first: float | str
    second: float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDifference:
    """One tensor of the saved state that differs, and by how much."""

    name: str
    """Dotted: "model.0.weight", "optimizer.0.weight.exp_avg", "streams.torch"."""
    kind: Literal["parameter", "buffer", "gradient", "optimizer", "other"]
    largest: float = float("nan")
    """Largest absolute difference of an element; NaN where it has no size (text, other shapes)."""
    relative: float = float("nan")
    """L2 norm of the difference ÷ that of the first run's tensor."""
    elements: int = 0
    """Elements that differ in a bit."""
    of: int = 0
    """Elements in all."""
    detail: str = ""
    """What differs where no size can be given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointDifference:
    """What two runs' states of the same step differ in."""

    step: int
    """The state just before this step."""
    differences: tuple[StateDifference, ...]
    """Parameters first, then buffers, optimizer state and the rest, in the model's order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySearch:
    """Which of the differing settings make the good run diverge."""

    good: str
    bad: str
    finding: Finding
    settings: tuple[str, ...]
    """The fewest that are enough, by name; empty unless found."""
    patch: Mapping[str, Any] = field(default_factory=dict)
    """The experiment keys that were set on the good run."""
    untold: tuple[str, ...] = ()
    """Those that may not be needed: without them the run could not be judged."""
    questions: int = 0
    steps: int = 0
    """Training steps made for the answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Where two runs part, and what they were told differently."""

    first: str
    """Id of the first run."""
    second: str
    shared_steps: int
    """Steps that both recorded."""
    record: RecordDifference | None
    """None when all shared steps are equal in every bit."""
    same_until: int | None = None
    """Step of the latest common checkpoint before they part whose states are equal, if any."""
    checkpoint: CheckpointDifference | None = None
    """The first checkpoint of the same step whose states differ."""
    tensor: TensorDifference | None = None
    """The first tensor that differs when both are replayed from `same_until`."""
    replayed: tuple[int, int] | None = None
    """First and last step of that replay, None when none was made."""
    not_reproduced: tuple[str, ...] = ()
    """Runs whose replay was not what they had recorded."""
    keys: tuple[KeyDifference, ...] = ()
    fingerprint: tuple[str, ...] = ()
    """What differs between the machines and code of the two, as sentences."""
    search: KeySearch | None = None

    @property
    def parted(self) -> bool:
        """Whether anything that was recorded differs."""
        return self.record is not None or self.checkpoint is not None or self.tensor is not None
