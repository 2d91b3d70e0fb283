"""The list of decisions, from the titles of their files."""

from __future__ import annotations

from pathlib import Path

_HEAD = """# Decisions

Why it is built like this: one page each, with what would change our mind. Made from
their titles by `python -m experiments.reference --write`.

"""


def page(folder: Path) -> str:
    """Return the list as Markdown."""
    lines = []
    for path in sorted(folder.glob("[0-9]*.md")):
        title = path.read_text("utf-8").splitlines()[0].removeprefix("# ")
        number, _, words = title.partition(": ")
        lines.append(f"- [{number}]({path.name}) {words}")
    return _HEAD + "\n".join(lines) + "\n"
