"""The decision tree as a picture, made from the nodes that a bisect walks."""

from __future__ import annotations

from collections.abc import Mapping

from stabexp.bisection.decision_tree import Node
from stabexp.reporting.curve import text
from stabexp.reporting.svg_document import Picture, svg_document

ALSO = {"rules": "or what the rule stands for", "operation": "or loss_function, by its place"}
"""Question → what is added where its answer may name another cause than its node does."""

WIDTH, TOP, ROW = 900, 74, 46
_CENTRE, _QUESTION, _EXIT = 36, 64, 692
_STYLE = """<style>
.q{fill:var(--ink);font-size:13px}.n{fill:var(--paper);font-weight:640}.dot{fill:var(--ink)}
.way{stroke:var(--soft);stroke-width:1.5;fill:none}.cause{fill:var(--before);font-weight:640;
font-size:13px}.none{fill:var(--onset)}.said{font-size:11px}.head{fill:var(--soft)}
</style>"""


def tree_picture(nodes: Mapping[str, Node], *, title: str, blameless: tuple[str, ...]) -> str:
    """Return the questions from top to bottom, and to the right where each can end.

    Args:
        nodes: Name → question, in the order in which they are asked.
        title: Of the picture.
        blameless: Causes that blame nothing; they have another colour.
    """
    parts = [_STYLE]
    names = list(nodes)
    for at, name in enumerate(names):
        parts += _row(at, name, nodes[name], last=at == len(names) - 1, blameless=blameless)
    described = [
        f"{number}. {nodes[name].question} {'; '.join(_ends(nodes[name]))}"
        for number, name in enumerate(names, 1)
    ]
    return svg_document(
        Picture(
            parts=parts,
            title=title,
            subtitle="Asked from the top; the first answer that leads to the right ends it.",
            description=" ".join(described),
            width=WIDTH,
            height=TOP + ROW * len(names) + 8,
        )
    )


def _ends(node: Node) -> list[str]:
    ways = (("yes", node.yes), ("no", node.no))
    return [f"{answer}: {way.removeprefix('= ')}" for answer, way in ways if way.startswith("= ")]


def _row(at: int, name: str, node: Node, *, last: bool, blameless: tuple[str, ...]) -> list[str]:
    y = TOP + ROW * at
    parts = []
    if not last:
        onwards = "no" if node.yes.startswith("= ") else "yes"
        parts += [
            f'<path class="way" d="M{_CENTRE} {y + 13}v{ROW - 26}"/>',
            f'<text class="said" x="{_CENTRE + 7}" y="{y + ROW / 2 + 4:.0f}">{onwards}</text>',
        ]
    parts += [
        f'<circle class="dot" cx="{_CENTRE}" cy="{y}" r="12"/>',
        f'<text class="n" x="{_CENTRE}" y="{y + 4}" text-anchor="middle">{at + 1}</text>',
        f'<text class="q" x="{_QUESTION}" y="{y + 5}">{text(node.question)}</text>',
    ]
    reached = _QUESTION + 7.2 * len(node.question) + 12
    if _ends(node) and reached < _EXIT - 44:
        parts.append(f'<path class="grid" d="M{reached:.0f} {y}H{_EXIT - 42}"/>')
    for row, end in enumerate(_ends(node)):
        answer, _, cause = end.partition(": ")
        high = y + 24 * row
        kind = "cause none" if cause in blameless else "cause"
        parts += [
            f'<text class="said" x="{_EXIT - 34}" y="{high + 4}">{answer}</text>',
            f'<path class="way" d="M{_EXIT - 12} {high}h12m-5 -4l5 4l-5 4"/>',
            f'<text class="{kind}" x="{_EXIT + 9}" y="{high + 5}">{text(cause)}</text>',
        ]
    if name in ALSO and _ends(node):
        parts.append(f'<text class="said" x="{_EXIT + 9}" y="{y + 20}">{text(ALSO[name])}</text>')
    return parts
