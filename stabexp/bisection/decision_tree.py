"""The decision tree as data: questions in order, each answered from facts, each leading somewhere.

Cures are not causes: a lower rate cures most faults. So a cure only opens a question; what was seen
(an operation that made the first NaN, a broken rule, a number lost in half precision, bursts of the
gradient, a full rate that is fine once ramped up) and how the run was configured decide it.
Questions whose answer would make all later ones meaningless come first, then those that one or two
replays settle, the ladders of doses last. A question that stays open ends the walk: what comes
after it would be blamed for want of an answer.

A node says what it needs to know. Replays are made for a question only when the walk arrives there
and the run is such that its answer could be yes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

from stabexp.bisection.evidence import (
    half_precision,
    implementation,
    reproduction,
    samples,
    state,
    step_size,
    together,
)
from stabexp.bisection.evidence.answer import Answer
from stabexp.bisection.facts import Facts
from stabexp.records import Cause, Evidence, TrialRecord


def always(facts: Facts) -> bool:
    """Replays are needed whatever the run is like."""
    return True


def never(facts: Facts) -> bool:
    """The question is answered without replays of its own."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One question; `yes`, `no` and `unknown` name the next node, or a cause as "= cause".

    At "= cause" the answer may name another one, where a question can end at several.
    """

    question: str
    ask: Callable[[Facts], Answer]
    yes: str
    no: str
    unknown: str = "= inconclusive"
    needs: Callable[[Facts], bool] = never
    """Whether replays have to be made before the question can be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """How far the tree could be walked with what is known."""

    path: tuple[Evidence, ...]
    cause: Cause = "inconclusive"
    """Where the walk ended; meaningless while it waits."""
    answer: Answer | None = None
    """The answer at which it ended."""
    waiting: str = ""
    """The node whose replays must be made first; empty when the walk has ended."""


def walk(facts: Facts, tree: dict[str, Node] | None = None) -> Walk:
    """Walk the tree from its first node, until it ends or replays are needed."""
    nodes = TREE if tree is None else tree
    name = next(iter(nodes))
    path: list[Evidence] = []
    while True:
        node = nodes[name]
        if name not in facts.gathered and node.needs(facts):
            return Walk(path=tuple(path), waiting=name)
        answer = node.ask(facts)
        if answer.yes and (again := facts.disproved.get(name)) is not None:
            answer = _half_the_truth(answer, again)
        target = {True: node.yes, False: node.no, None: node.unknown}[answer.yes]
        ended = target.startswith("= ")
        path.append(
            Evidence(
                node=name,
                question=node.question,
                answer=answer.text,
                detail=answer.detail,
                trials=answer.trials,
                decisive=ended,
            )
        )
        if ended:
            cause = cast(Cause, target.removeprefix("= "))
            if answer.yes and answer.cause is not None:
                cause = answer.cause
            return Walk(path=tuple(path), cause=cause, answer=answer)
        name = target


def _half_the_truth(answer: Answer, again: TrialRecord) -> Answer:
    """Return the answer of a question whose fault is there and does not explain all."""
    assert again.divergence is not None
    return Answer(
        yes=False,
        detail=f"{answer.detail}; but with that taken away the run crashed again at step "
        f"{again.divergence.detected}",
        trials=(*answer.trials, again.spec.key),
    )


def _half(facts: Facts) -> bool:
    return facts.setup.precision not in {"fp32", "fp64"}


def _rules(facts: Facts) -> Answer:
    """Ask about all rules where the run only failed to learn: nothing else tells then."""
    return implementation.rules(facts, silent=facts.divergence.pattern == "plateau")


def _suspects(facts: Facts) -> bool:
    found = implementation.suspects(facts, silent=False)
    return any(implementation.rule_test(item) is not None for item in found)


def _jump(facts: Facts) -> bool:
    return state.update_jumped(facts) is not None


def _rose(facts: Facts) -> bool:
    return state.rate_rose(facts) is not None


TREE: dict[str, Node] = {
    "control": Node(
        question="Does the unchanged replay crash at the same step, bit for bit?",
        ask=reproduction.control,
        needs=always,
        yes="overfitting",
        no="= not_reproduced",
    ),
    "overfitting": Node(
        question="Is the training loss far below that of held-out data, which rises?",
        ask=state.overfitting,
        yes="= overfitting",
        no="rules",
    ),
    "rules": Node(
        question="Does the training step break a rule of its own, and does keeping it cure?",
        ask=_rules,
        needs=_suspects,
        yes="= implementation",
        no="operation",
    ),
    "operation": Node(
        question="Did one operation, fed with ordinary numbers, make the first NaN or Inf?",
        ask=implementation.operation,
        needs=implementation.operation_suspected,
        yes="= implementation",
        no="placebo",
    ),
    "placebo": Node(
        question="Does a change too small to be a remedy cure it too?",
        ask=reproduction.placebo,
        needs=always,
        yes="= marginal",
        no="precision",
    ),
    "precision": Node(
        question="Was a number lost in half precision, and does a wider format cure?",
        ask=half_precision.precision,
        needs=_half,
        yes="= precision",
        no="data",
    ),
    "data": Node(
        question="Does the crash stay away without a few samples, and not without as many others?",
        ask=samples.data,
        needs=reproduction.stands_out,
        yes="= data",
        no="order",
    ),
    "order": Node(
        question="Does another order of the same data cure, though no samples are to blame?",
        ask=reproduction.order,
        yes="= marginal",
        no="schedule",
    ),
    "schedule": Node(
        question="Did the schedule raise the rate, and does the old rate train through?",
        ask=state.schedule,
        needs=_rose,
        yes="= schedule",
        no="optimizer_state",
    ),
    "optimizer_state": Node(
        question="Was the optimizer's state lost or damaged, and does keeping it cure?",
        ask=state.optimizer_state,
        needs=_jump,
        yes="= optimizer_state",
        no="initialisation",
    ),
    "initialisation": Node(
        question="Does the run begin far worse than guessing, and do smaller weights cure?",
        ask=state.initialisation,
        needs=state.first_loss_wild,
        yes="= initialisation",
        no="weight_decay",
    ),
    "weight_decay": Node(
        question="Does weight decay eat the weights, and does the run train through without?",
        ask=state.weight_decay,
        needs=state.decay_suspected,
        yes="= weight_decay",
        no="batch_size",
    ),
    "batch_size": Node(
        question="Are there so few samples per update that their noise throws the run over?",
        ask=step_size.batch_size,
        needs=step_size.few_samples,
        yes="= batch_size",
        no="clip_norm",
    ),
    "clip_norm": Node(
        question="Do rare bursts of the gradient, which nothing clips, throw the run over?",
        ask=step_size.clip_norm,
        needs=step_size.may_burst,
        yes="= clip_norm",
        no="warmup",
    ),
    "warmup": Node(
        question="Is the full rate fine once it is ramped up?",
        ask=step_size.warmup,
        needs=step_size.early,
        yes="= warmup",
        no="learning_rate",
    ),
    "learning_rate": Node(
        question="Is the steady rate itself too high?",
        ask=step_size.learning_rate,
        needs=always,
        yes="= learning_rate",
        no="not_learning",
    ),
    "not_learning": Node(
        question="Does no rate learn, so that model or labels hold nothing to be learned?",
        ask=step_size.not_learning,
        yes="= not_learning",
        no="joint",
    ),
    "joint": Node(
        question="Do two changes cure together of which neither does alone?",
        ask=together.joint,
        needs=always,
        yes="= joint",
        no="= inconclusive",
    ),
}
"""For a run that diverged."""

SILENT_TREE: dict[str, Node] = {
    "control": Node(
        question="Does the unchanged replay equal the run, bit for bit?",
        ask=reproduction.control,
        needs=always,
        yes="rules",
        no="= not_reproduced",
    ),
    "rules": Node(
        question="Does the training step break a rule of its own?",
        ask=partial(implementation.rules, silent=True),
        yes="= implementation",
        no="overfitting",
    ),
    "overfitting": Node(
        question="Is the training loss far below that of held-out data, which rises?",
        ask=state.overfitting,
        yes="= overfitting",
        no="= inconclusive",
    ),
}
"""For a run that did not diverge and still is not what it should be."""
