"""The page of the 49 systems that three practitioners' documents ask for, and where each one is.

    python -m experiments.systems --write docs/systems.md     from docs/systems.yaml

Every row names a command line, a class or function, a test and a figure. A test follows them all,
so that none of them can quietly go away.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

DOCS = Path(__file__).parents[1] / "docs"
ROWS = DOCS / "systems.yaml"
PAGE = DOCS / "systems.md"

PARTS = {
    "A": "Crashes and NaN",
    "B": "Fine-tuning: explosion and divergence",
    "C": "Oscillation and gradient anomalies",
}
IDS = tuple(
    f"{part}{number}"
    for part, last in (("A", 20), ("B", 21), ("C", 8))
    for number in range(1, last + 1)
)

_HEAD = """# The 49 systems

Three practitioners' documents started this project: on crashes and NaN in vision-language training
(A), on fine-tuning (B), on loss oscillation and gradient anomalies (C). Each row is one system or
rule of theirs: what a user calls, the code, the test that shows it working, and a figure that was
measured. Figures of the documents are fall-backs; where a run has a healthy window of its own, that
decides. Made from `systems.yaml` by `python -m experiments.systems --write docs/systems.md`; a
test follows every command, name and test on this page.
"""


@dataclass(frozen=True, kw_only=True)
class System:
    """One row."""

    id: str
    name: str
    """What it is, in our words."""
    command: str
    """What anyone can run: a command line of ours, or a key of the experiment file."""
    target: str
    """`module:name` of the class or function behind it."""
    test: str
    """`tests/file.py::function` that shows it on a real training."""
    figure: str
    """What was measured, and where it is printed."""
    judged: str = ""
    """Where the documents' advice was wrong or harmful as stated: what we built, and why."""


def read_systems() -> list[System]:
    """Return the rows in the order of the file."""
    return [System(**row) for row in yaml.safe_load(ROWS.read_text("utf-8"))]


def page(systems: list[System]) -> str:
    """Return the page in Markdown."""
    return "\n".join([_HEAD, *_parts(systems)]) + "\n"


def _parts(systems: list[System]) -> Iterator[str]:
    for part, title in PARTS.items():
        yield f"## {part}. {title}\n"
        yield "| id | system | run it | code | test | figure |"
        yield "|---|---|---|---|---|---|"
        for row in systems:
            if row.id.startswith(part):
                test = row.test.replace("::", "` `")
                cells = (row.name, f"`{row.command}`", f"`{row.target}`", f"`{test}`", row.figure)
                yield f"| {row.id} | " + " | ".join(cell.strip() for cell in cells) + " |"
        yield ""
    yield "## Where the advice was not built as stated\n"
    yield from (f"- **{row.id}** {row.judged.strip()}" for row in systems if row.judged)


def main() -> None:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, default=None)
    text = page(read_systems())
    file = parser.parse_args().write
    if file is None:
        print(text)
    else:
        file.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
