"""The decision tree as a picture: all its questions, the way taken, and what the others would name.

The tree itself knows its questions. What is added here are names short enough to stand in a
picture, and how far the walk came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from stabexp.bisection.decision_tree import SILENT_TREE, TREE, Node
from stabexp.records import Evidence, Verdict

SHORT: Mapping[str, str] = {
    "control": "Does it crash again, bit for bit?",
    "overfitting": "Did it learn its data by heart?",
    "rules": "Is a rule of the training step broken?",
    "operation": "Did one operation make the first NaN?",
    "placebo": "Does next to nothing cure it too?",
    "precision": "Was a number lost in half precision?",
    "data": "Are a few samples to blame?",
    "order": "Does another order of the data cure it?",
    "schedule": "Did the schedule raise the rate?",
    "optimizer_state": "Was the optimizer’s state lost?",
    "initialisation": "Do the weights start too wide?",
    "weight_decay": "Does weight decay eat the weights?",
    "batch_size": "Are there too few samples per update?",
    "clip_norm": "Do bursts of the gradient go unclipped?",
    "warmup": "Does the rate only need a ramp?",
    "learning_rate": "Is the steady rate too high?",
    "not_learning": "Does no rate learn at all?",
    "joint": "Does it take two changes together?",
    "repeats": "Does the cure hold in other orders?",
    "reversal": "Put back, does the crash come back?",
    "proof": "With the fix, does it train through?",
}
"""Node → its question in a few words."""

_SILENT = {"control": "Is the replay equal, bit for bit?"}
"""The same, where a run that did not diverge is asked something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """A way out of the tree at a question."""

    answer: str
    """The answer that leads there."""
    cause: str
    """What the verdict would be."""
    taken: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One node of the picture."""

    node: str
    text: str
    number: int
    """Its place in the verdict's path, from 1; 0 when it was never asked."""
    answer: str
    """Empty when it was never asked."""
    exits: tuple[Exit, ...] = ()
    passed: bool = False
    """Never asked, though later ones were: the tree of that time did not have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """The whole picture, from the root down."""

    questions: tuple[Question, ...]
    tests: tuple[Question, ...]
    """What the answer was put to after the last question: reversal, proof, repeats."""

    @property
    def asked(self) -> int:
        """How many of the questions were asked."""
        return sum(question.number > 0 for question in self.questions)


def tree_of(verdict: Verdict) -> Tree:
    """Return the tree that led to a verdict; also where an older tree asked other questions."""
    silent = verdict.divergence.detector == "none"
    nodes = SILENT_TREE if silent else TREE
    short = {**SHORT, **(_SILENT if silent else {})}
    numbers = {step.node: number for number, step in enumerate(verdict.path, 1)}
    last = max((numbers[name] for name in nodes if name in numbers), default=0)
    walked, after = verdict.path[:last], verdict.path[last:]
    ended = walked[-1].node if walked else ""
    questions = [
        _question(name, nodes.get(name), numbers, verdict, short, ended=name == ended)
        for name in _in_order(list(nodes), walked)
    ]
    reached = max((at for at, item in enumerate(questions) if item.number), default=-1)
    questions = [
        replace(item, passed=not item.number and at < reached) for at, item in enumerate(questions)
    ]
    tests = [_question(step.node, None, numbers, verdict, short) for step in after]
    return Tree(questions=tuple(questions), tests=tuple(tests))


def _in_order(names: list[str], walked: Sequence[Evidence]) -> list[str]:
    """Return the tree's questions; those that only this walk asked follow the one before them."""
    before = -1
    for step in walked:
        if step.node in names:
            before = max(before, names.index(step.node))
        else:
            before += 1
            names.insert(before, step.node)
    return names


def _question(
    name: str,
    node: Node | None,
    numbers: Mapping[str, int],
    verdict: Verdict,
    short: Mapping[str, str],
    *,
    ended: bool = False,
) -> Question:
    number = numbers.get(name, 0)
    step = verdict.path[number - 1] if number else None
    return Question(
        node=name,
        text=short.get(name) or (step.question if step else node.question if node else name),
        number=number,
        answer=step.answer if step else "",
        exits=_exits(node, step, verdict, ended=ended) if node else (),
    )


def _exits(node: Node, step: Evidence | None, verdict: Verdict, *, ended: bool) -> tuple[Exit, ...]:
    targets = {"yes": node.yes, "no": node.no}
    found = [
        Exit(answer=answer, cause=target.removeprefix("= "), taken=False)
        for answer, target in targets.items()
        if target.startswith("= ")
    ]
    if not ended or step is None:
        return tuple(found)
    given = "no" if step.answer == "not tried" else step.answer
    usual = targets.get(given, node.unknown)
    # A question can end at more than one cause; a contradicted answer still went out at its own.
    own = usual.startswith("= ") and (verdict.cause == "inconclusive" or given != "yes")
    cause = usual.removeprefix("= ") if own else verdict.cause
    rest = [way for way in found if way.answer != given]
    return (Exit(answer=given, cause=cause, taken=True), *rest)
