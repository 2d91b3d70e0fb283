"""Two replays of the same steps: the first tensor, in the order of execution, that is not the same.

What comes first is where they part; everything after it is a consequence. Within a step the order
is batch → module outputs → loss → gradients, from the last layer to the first → gradients as the
optimizer sees them → its settings → its state → parameters → buffers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal

Kind = Literal["bits", "form", "missing", "extra"]
"""bits: other values · form: another dtype or shape · missing: only the first replay has it at this
point of the step · extra: only the second has it, so the two ran other code there."""

Digests = Mapping[str, Sequence[Sequence[Any]]]
"""Step → its tensors in order, each [micro-batch, phase, name, form, digest]; the findings of the
instrument `tensor_digests`."""

_PHASES = {
    "input": "the batch, {name}",
    "forward": "the output of {name}",
    "loss": "the loss",
    "backward": "the gradient of {name}",
    "gradients": "the gradient of {name} as the optimizer sees it",
    "settings": "the optimizer's {name}",
    "optimizer": "the optimizer's {name}",
    "parameters": "the parameter {name}",
    "buffers": "the buffer {name}",
    "scaler": "the gradient scaler's {name}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorDifference:
    """The first tensor in which two replays differ."""

    step: int
    phase: str
    """Where in the step: "input", "forward", "loss", "backward", …"""
    name: str
    """Dotted name of the module, parameter or state; the place in the batch for an input."""
    kind: Kind
    batch: int = 0
    """Micro-batch within the step, from 0."""
    first: str = ""
    """dtype and shape in the first replay, e.g. "float32(16, 64)"; empty when it has none."""
    second: str = ""
    """The same of the second one."""

    def __str__(self) -> str:
        """Return it as half a sentence: "step 7, the output of blocks.1.fc: other bits"."""
        tensor = _PHASES.get(self.phase, f"{self.phase} {{name}}").format(name=self.name)
        place = f"step {self.step}, " + (f"micro-batch {self.batch}, " if self.batch else "")
        what = {
            "bits": f"other bits ({self.first})",
            "form": f"{self.first} in one, {self.second} in the other",
            "missing": "only in the first at this point",
            "extra": "only in the second at this point",
        }[self.kind]
        return f"{place}{tensor}: {what}"


def first_difference(a: Digests, b: Digests) -> TensorDifference | None:
    """Return the first tensor that differs in the steps both have, None when all are the same."""
    for step in sorted({int(step) for step in a} & {int(step) for step in b}):
        for one, other in zip_longest(a[str(step)], b[str(step)]):
            if one != other:
                return _difference(step, one, other, a[str(step)], b[str(step)])
    return None


def shared_steps(a: Digests, b: Digests) -> tuple[int, ...]:
    """Return the steps that both watched, in order: what "no difference" is said about."""
    return tuple(sorted({int(step) for step in a} & {int(step) for step in b}))


def _difference(
    step: int,
    one: Sequence[Any] | None,
    other: Sequence[Any] | None,
    all_a: Sequence[Sequence[Any]],
    all_b: Sequence[Sequence[Any]],
) -> TensorDifference:
    if one is not None and other is not None and list(one[:3]) == list(other[:3]):
        kind: Kind = "bits" if one[3] == other[3] else "form"
        return _named(step, one, kind, first=str(one[3]), second=str(other[3]))
    # The two ran other code here: name what the second has put in, else what it leaves out. Where
    # only the order differs, that is the first's tensor at this place.
    more = other is not None and _count(other, all_b) > _count(other, all_a)
    if other is not None and (one is None or more):
        return _named(step, other, "extra", second=str(other[3]))
    assert one is not None
    return _named(step, one, "missing", first=str(one[3]))


def _count(entry: Sequence[Any], entries: Sequence[Sequence[Any]]) -> int:
    """Return how often a tensor of this place and name is among the entries."""
    return sum(list(other[:3]) == list(entry[:3]) for other in entries)


def _named(
    step: int, entry: Sequence[Any], kind: Kind, *, first: str = "", second: str = ""
) -> TensorDifference:
    return TensorDifference(
        step=step,
        batch=int(entry[0]),
        phase=str(entry[1]),
        name=str(entry[2]),
        kind=kind,
        first=first,
        second=second,
    )
