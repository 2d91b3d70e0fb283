"""The decision tree as data: questions in order, each answered from facts, each leading somewhere.

Cures are not causes: a lower rate cures most faults. So a cure only opens a question; what was seen
(a number lost in half precision, bursts of the gradient, a full rate that is fine once ramped up)
and how the run was configured decide it. Questions whose answer would make all later ones
meaningless come first, and a question that stays open ends the walk: what comes after it would be
blamed for want of an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from stabexp.bisection import evidence
from stabexp.bisection.evidence import Answer
from stabexp.bisection.facts import Facts
from stabexp.records import Cause, Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One question; `yes`, `no` and `unknown` name the next node, or a cause as "= cause"."""

    question: str
    ask: Callable[[Facts], Answer]
    yes: str
    no: str
    unknown: str = "= inconclusive"


def walk(facts: Facts, tree: dict[str, Node] | None = None) -> tuple[Cause, tuple[Evidence, ...]]:
    """Walk the tree from its first node; return the cause and the path with its evidence."""
    nodes = TREE if tree is None else tree
    name = next(iter(nodes))
    path: list[Evidence] = []
    while True:
        node = nodes[name]
        answer = node.ask(facts)
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
            return cast(Cause, target.removeprefix("= ")), tuple(path)
        name = target


TREE: dict[str, Node] = {
    "control": Node(
        question="Does the unchanged replay crash at the same step, bit for bit?",
        ask=evidence.control,
        yes="placebo",
        no="= not_reproduced",
    ),
    "placebo": Node(
        question="Does a change too small to be a remedy cure it too?",
        ask=evidence.placebo,
        yes="= marginal",
        no="any_cure",
    ),
    "any_cure": Node(
        question="Does any single change cure it robustly?",
        ask=evidence.any_cure,
        yes="precision",
        no="= inconclusive",
    ),
    "precision": Node(
        question="Was a number lost in half precision, and does a wider format cure?",
        ask=evidence.precision,
        yes="= precision",
        no="data",
    ),
    "data": Node(
        question="Does the crash hang on the very samples it began with?",
        ask=evidence.data,
        yes="= inconclusive",
        no="batch_size",
    ),
    "batch_size": Node(
        question="Are there so few samples per update that their noise throws the run over?",
        ask=evidence.batch_size,
        yes="= batch_size",
        no="clip_norm",
    ),
    "clip_norm": Node(
        question="Do rare bursts of the gradient, which nothing clips, throw the run over?",
        ask=evidence.clip_norm,
        yes="= clip_norm",
        no="warmup",
    ),
    "warmup": Node(
        question="Is the full rate fine once it is ramped up?",
        ask=evidence.warmup,
        yes="= warmup",
        no="learning_rate",
    ),
    "learning_rate": Node(
        question="Is the steady rate itself too high?",
        ask=evidence.learning_rate,
        yes="= learning_rate",
        no="= inconclusive",
    ),
}
