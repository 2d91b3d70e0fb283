"""What a bisect knows so far, and what the rest of it is expected to cost.

Which questions lie ahead is known from the tree and the run. How many steps each replays, and how
often it is the last one, was counted on bisects of seeded failures (`COUNTED`); the steps of one
replay follow from how far the crash is from where replays start. So an estimate is a mean over such
bisects, given what is known of this one. It is no bound: only a budget is.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from stabexp.bisection.decision_tree import Node, Walk, never
from stabexp.bisection.evidence.state import overfitting
from stabexp.bisection.facts import Facts
from stabexp.bisection.plan import Plan
from stabexp.records import VARIABLES, Cause, TrialSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What one question took, on the mean over the bisects that were counted."""

    replays: float
    lengths: float
    """Steps of all its replays, in lengths of one that looks for a cure (`Plan.searched`)."""
    last: float
    """Share of the bisects that asked it in which it was the last one before the proof."""
    asked: float = 1.0
    """Share of all bisects that asked it, for a question of which only replays tell whether."""


COUNTED: Mapping[str, Counted] = {
    "control": Counted(replays=1.0, lengths=0.33, last=0.08),
    "rules": Counted(replays=1.0, lengths=1.0, last=0.88, asked=0.11),
    "operation": Counted(replays=1.1, lengths=0.81, last=0.65, asked=0.42),
    "placebo": Counted(replays=2.0, lengths=0.83, last=0.03),
    "precision": Counted(replays=2.6, lengths=2.28, last=0.86),
    "data": Counted(replays=3.6, lengths=1.6, last=0.28, asked=0.72),
    "schedule": Counted(replays=1.0, lengths=1.0, last=0.86),
    "optimizer_state": Counted(replays=1.0, lengths=0.8, last=0.5),
    "initialisation": Counted(replays=1.7, lengths=1.4, last=0.6),
    "weight_decay": Counted(replays=1.0, lengths=1.0, last=0.8),
    "batch_size": Counted(replays=6.0, lengths=3.92, last=0.75),
    "clip_norm": Counted(replays=3.2, lengths=2.4, last=0.38),
    "warmup": Counted(replays=2.0, lengths=2.0, last=0.5),
    "learning_rate": Counted(replays=5.5, lengths=4.9, last=0.67),
    "joint": Counted(replays=1.8, lengths=1.25, last=1.0),
    "proof": Counted(replays=1.5, lengths=1.3, last=1.0),
}
"""`python -m experiments.estimate --count` counts them again."""

SCRATCH = frozenset({"initialisation", "weight_decay", "warmup"})
"""Questions whose replays begin at step 0 where they can."""

WATCHED = frozenset({"control", "operation"})
"""Questions in whose replays every operation is watched."""

_TOLD_BY = {"rules": "control", "operation": "control", "data": "placebo"}
"""Question → the one whose replays tell whether it has to be asked."""
_NO_REPLAYS = {"order": "placebo", "not_learning": "learning_rate"}
"""Question without replays of its own → the one whose replays answer it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What is expected to be replayed."""

    replays: float = 0.0
    steps: float = 0.0
    watched: float = 0.0
    """Steps among them in which every operation is watched, which takes many times as long."""

    def __add__(self, other: Cost) -> Cost:
        """Return both together."""
        return Cost(
            replays=self.replays + other.replays,
            steps=self.steps + other.steps,
            watched=self.watched + other.watched,
        )

    def times(self, share: float) -> Cost:
        """Return a share of it."""
        return Cost(
            replays=share * self.replays,
            steps=share * self.steps,
            watched=share * self.watched,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known when a question is asked, and what is still to come."""

    node: str
    """The question, by its name in the tree; "proof" once a cause is named."""
    good_step: int
    """Where replays start."""
    onset: int
    detected: int
    ruled_out: tuple[Cause, ...] = ()
    """Causes that a question on the way was about, and that it was answered no to."""
    possible: tuple[Cause, ...] = ()
    """Causes that this question and those ahead are about, in their order."""
    cures: tuple[str, ...] = ()
    """Single changes that kept the crash away: "clip_norm 4.76"."""
    now: Cost = Cost()
    """What this question is expected to take."""
    later: Cost = Cost()
    """What everything after it is expected to take, the proof included."""
    length: int = 0
    """Steps of one replay that looks for a cure."""
    step_seconds: float | None = None
    """Seconds that a step of the run itself took, in the median; None where it is not known."""
    budget_steps: int | None = None
    """Steps that the budget leaves; None where it has no limit of steps."""
    budget_seconds: float | None = None
    """Seconds that the budget leaves; None where it has no limit of time."""


def standing(
    facts: Facts,
    plan: Plan,
    tree: Mapping[str, Node],
    walked: Walk,
    *,
    planned: Sequence[TrialSpec] = (),
    thorough: bool = False,
    budget_steps: int | None = None,
    budget_seconds: float | None = None,
) -> Standing:
    """Return what is known at a question that waits for its replays, or at the proof.

    Args:
        facts: What the replays so far have shown.
        plan: Where replays start and end.
        tree: The questions.
        walked: How far they were answered.
        planned: The replays of the proof, where they are known.
        thorough: Whether the other settings are tried afterwards.
        budget_steps: Steps that the budget leaves.
        budget_seconds: Seconds that it leaves.
    """
    node = walked.waiting or "proof"
    ahead = _ahead(facts, tree, node)
    possible = tuple(dict.fromkeys(c for name in ahead if (c := _cause(tree, name))))
    if not walked.waiting:
        possible = (walked.cause,)
    denied = [_cause(tree, each.node) for each in walked.path if each.answer == "no"]
    ruled_out = tuple(dict.fromkeys(c for c in denied if c and c not in possible))
    now, later = _expected(facts, plan, ahead, node)
    if planned:
        now = Cost(replays=len(planned), steps=sum(_length(spec, plan) for spec in planned))
    if thorough:
        later += _others(facts, plan, ahead)
    return Standing(
        node=node,
        good_step=plan.good_step,
        onset=facts.divergence.onset,
        detected=facts.divergence.detected,
        ruled_out=ruled_out,
        possible=possible,
        cures=_cures(facts),
        now=now,
        later=later,
        length=plan.searched(plan.good_step) - plan.good_step,
        step_seconds=_step_seconds(facts),
        budget_steps=budget_steps,
        budget_seconds=budget_seconds,
    )


def _cause(tree: Mapping[str, Node], name: str) -> Cause | None:
    """Return the cause that a question names when it is answered yes, None when it goes on."""
    node = tree[name]
    if node.no == "= not_reproduced":
        return None  # the one question whose yes is the usual answer
    if not node.yes.startswith("= "):
        return None
    cause: Cause = node.yes.removeprefix("= ")  # type: ignore[assignment]
    return cause


def _ahead(facts: Facts, tree: Mapping[str, Node], node: str) -> list[str]:
    """Return the questions from this one on whose answer may still be yes."""
    if node == "proof":
        return []
    names = list(tree)
    return [
        name
        for name in names[names.index(node) :]
        if name == node or _chance(facts, tree, name) > 0
    ]


def _chance(facts: Facts, tree: Mapping[str, Node], name: str) -> float:
    """Return how likely it is that a question ahead has to be asked."""
    if (told_by := _TOLD_BY.get(name)) is not None and told_by not in facts.gathered:
        return COUNTED[name].asked
    if (told_by := _NO_REPLAYS.get(name)) is not None:
        return float(told_by not in facts.gathered)
    if tree[name].needs is never:
        return float(name == "overfitting" and overfitting(facts).yes is not False)
    return float(tree[name].needs(facts))


def _expected(facts: Facts, plan: Plan, ahead: list[str], node: str) -> tuple[Cost, Cost]:
    """Return the mean cost of a question, and of all after it."""
    proof = _cost("proof", plan)
    if node == "proof":
        return proof, Cost()
    now = _cost(node, plan) if node in COUNTED else Cost()
    named = COUNTED[node].last if node in COUNTED else 0.0
    later, reached = Cost(), 1.0 - named
    proved = named if node not in {"control", "placebo"} else 0.0
    for name in ahead[1:]:
        if name not in COUNTED:
            continue
        told_by = _TOLD_BY.get(name)
        unknown = told_by is not None and told_by not in facts.gathered
        chance = reached * (COUNTED[name].asked if unknown else 1.0)
        later += _cost(name, plan).times(chance)
        named = chance * COUNTED[name].last
        proved += named if name != "placebo" else 0.0
        reached -= named
    return now, later + proof.times(proved)


def _cost(name: str, plan: Plan) -> Cost:
    start = 0 if name in SCRATCH else plan.good_step
    if name in {"control", "placebo"}:  # they crash again where the run did
        steps = COUNTED[name].replays * (plan.divergence.detected + 1 - plan.good_step)
    else:
        steps = COUNTED[name].lengths * (plan.searched(start) - start)
    watched = steps if name in WATCHED else 0.0
    return Cost(replays=COUNTED[name].replays, steps=steps, watched=watched)


def _length(spec: TrialSpec, plan: Plan) -> int:
    """Return how far a replay goes if all is as it seems: a fix holds, a crash comes back."""
    length = spec.until_step - spec.from_step
    again = plan.divergence.detected + 1 - plan.good_step
    return min(length, again) if spec.role == "reversal" else length


def _others(facts: Facts, plan: Plan, ahead: list[str]) -> Cost:
    """Return what it takes to try all other settings once the cause is proved."""
    rest = [v for v in facts.variables if v in VARIABLES and v not in facts.ladders]
    total = Cost()
    for variable in rest:
        asked = 0.5 if variable in ahead else 0.0
        total += _cost(variable, plan).times(1.0 - asked)
    return total


def _cures(facts: Facts) -> tuple[str, ...]:
    """Return what kept the crash away so far, of each variable the mildest."""
    found = [f"{c.variable} {_dose(c.dose)}" for lad in facts.ladders.values() if (c := lad.cure)]
    for record in facts.tests.values():
        if record.outcome == "cured":
            found += [change.variable for change in record.spec.changes]
    if facts.data is not None and facts.data.cure and facts.data.samples:
        found.append(f"without {len(facts.data.samples)} of the samples")
    return tuple(dict.fromkeys(found))


def _step_seconds(facts: Facts) -> float | None:
    times = [(record.step, record.time) for record in facts.records]
    took = [b[1] - a[1] for a, b in pairwise(times) if b[0] == a[0] + 1 and b[1] > a[1]]
    return statistics.median(took) if took else None


def _dose(dose: float | int | str) -> str:
    return f"{dose:g}" if isinstance(dose, float) else str(dose)
