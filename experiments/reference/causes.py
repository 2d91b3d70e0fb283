"""What a verdict can say, and which question of the tree ends with it."""

from __future__ import annotations

import typing
from collections.abc import Mapping

from experiments.reference.markdown import joined, quoted, table
from stabexp.bisection.decision_tree import SILENT_TREE, TREE, Node
from stabexp.findings.taxonomy import CAUSES
from stabexp.records import BLAMELESS, FAMILIES, Cause

_LEAD = """What a verdict can say. Causes of one family are hard to tell apart, and cure each
other's symptoms; those of the family *none* blame nothing."""
_ALSO = {"loss_function": "operation"}
"""Cause → node whose answer may name it in place of the node's own."""
_WORDS = {
    "precision": "a number was too large or too small for its half-precision format",
    "not_learning": "no rate learns: model or labels hold nothing to be learned",
    "overfitting": "the model learned its training data by heart, so that its loss on others rises",
    "joint": "two changes cure together of which neither does alone",
    "not_reproduced": "the unchanged replay is not the run: something decides it that is not seen",
    "marginal": "a change too small to be a remedy cures too: the run is at the edge",
    "inconclusive": "nothing was proved, or a question stayed open; what is possible is ranked",
}


def page() -> str:
    """Return the page."""
    rows = []
    for cause in typing.get_args(Cause):
        words = _WORDS.get(cause) or CAUSES[cause]
        asked = "" if cause == "inconclusive" else " Or: ".join(_questions(cause))
        rows.append((f"`{cause}`", FAMILIES[cause], quoted(words), quoted(asked)))
    blame = ", ".join(f"`{name}`" for name in BLAMELESS)
    exits = f"Exit code 0 names a cause; {blame} end with 4 or 5."
    diverged, silent = _table(TREE), _table(SILENT_TREE)
    return joined(
        "# Causes",
        _LEAD,
        table(("cause", "family", "in words", "decided by"), rows),
        exits,
        "## The questions, in order",
        "Of a run that diverged (`stabexp bisect`):",
        diverged,
        "Of a run that trained to its end and still is not what it should be (`stabexp check`):",
        silent,
        "Each with its figures: [how a verdict is reached](../verdict_protocol.md).",
    )


def _table(tree: Mapping[str, Node]) -> str:
    rows = [
        (str(number), f"`{name}`", quoted(node.question), _way(node.yes), _way(node.no))
        for number, (name, node) in enumerate(tree.items(), 1)
    ]
    return table(("", "node", "question", "yes", "no"), rows)


def _way(target: str) -> str:
    cause = target.removeprefix("= ")
    return f"**{cause}**" if target != cause else f"`{target}`"


def _questions(cause: str) -> list[str]:
    also = _ALSO.get(cause, "")
    return [
        node.question
        for name, node in TREE.items()
        if name == also or any(f"= {cause}" == way for way in (node.yes, node.no, node.unknown))
    ]
