"""Makes the pages of the causes and of the decision tree from real runs.

    python -m experiments.causes --write [NAME …] [--cache FOLDER]

Each example is trained, bisected and set right; if its verdict is not the cause of the page, or the
run that was set right crashes, nothing is written. With a cache, what was made once is kept there,
and only texts and pictures are made anew.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import typing
from collections.abc import Sequence
from pathlib import Path

from experiments.pages import cause_pages, made_parts
from experiments.pages.cause_examples import EXAMPLES
from experiments.pages.cause_runs import Found, find_out
from experiments.pages.following import WentWrong
from experiments.pages.pictures import write_picture
from experiments.pages.tree_picture import tree_picture
from stabexp.bisection.decision_tree import SILENT_TREE, TREE
from stabexp.records import BLAMELESS, Cause

DOCS = Path(__file__).parents[1] / "docs"
NOWHERE = "http://127.0.0.1:9"
"""Nobody listens there: the examples are not about MLflow, and do not wait for it."""

ENDS = {name: node.yes.removeprefix("= ") for name, node in TREE.items()} | {
    "control": "not_reproduced",
    "operation": "loss_function",
    "order": "marginal",
    "joint": "joint",
}
"""Question → the cause whose example shows it answered."""


def page_of(cause: str) -> Path:
    """Return the page of a cause."""
    return DOCS / "causes" / f"{cause}.md"


def written(found: Sequence[Found]) -> dict[Path, str]:
    """Return the text of every file that the examples change."""
    files: dict[Path, str] = {}
    for one in found:
        page = page_of(one.cause)
        files[page] = made_parts.filled(page.read_text("utf-8"), cause_pages.parts(one))
        files[DOCS / "images" / "causes" / f"{one.cause}.svg"] = cause_pages.curves(one)
    return files | _tree({one.cause: one for one in found})


def _tree(found: dict[str, Found]) -> dict[Path, str]:
    """Return the page of the tree, its pictures, and the list of the causes."""
    page = DOCS / "decision_tree.md"
    text = page.read_text("utf-8")
    parts = {}
    for name in made_parts.names(text):
        own = [found[ENDS[name]]] if ENDS[name] in found else []
        # Where its own example was decided earlier, another one has an answer too.
        walked = [step for one in (*own, *found.values()) for step in one.verdict.path]
        answer = next((step for step in walked if step.node == name), None)
        if answer is not None:
            parts[name] = f"> *{answer.answer}.* {cause_pages.quoted(answer.detail)}"
    causes = typing.get_args(Cause)
    titles = [(cause, cause_pages.title_of(page_of(cause))) for cause in EXAMPLES]
    assert set(EXAMPLES) == set(causes)
    index = DOCS / "causes" / "index.md"
    pictures = {
        "decision_tree.svg": (TREE, "A run diverged: stabexp bisect"),
        "decision_tree_check.svg": (SILENT_TREE, "A run did not diverge: stabexp check"),
    }
    return {
        page: made_parts.filled(text, parts, partly=True),
        index: made_parts.filled(index.read_text("utf-8"), {"causes": cause_pages.index(titles)}),
    } | {
        DOCS / "images" / name: tree_picture(tree, title=title, blameless=BLAMELESS)
        for name, (tree, title) in pictures.items()
    }


def main() -> int:
    """Run from the command line; exit code 1 when a verdict is not the page's cause."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.causes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("causes", nargs="*", help="default: all")
    parser.add_argument("--cache", type=Path, help="where finished bisects are kept")
    parser.add_argument("--write", action="store_true", help="write the pages")
    given = parser.parse_args()
    if unknown := set(given.causes) - set(EXAMPLES):
        parser.error(f"{', '.join(sorted(unknown))}: no cause; there are {', '.join(EXAMPLES)}")
    os.environ["MLFLOW_TRACKING_URI"] = NOWHERE
    started = time.monotonic()
    # The last deliveries to MLflow may still be under way.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            found = [
                find_out(cause, EXAMPLES[cause], (given.cache or Path(folder)).absolute() / cause)
                for cause in given.causes or EXAMPLES
            ]
        except WentWrong as error:
            print(error, file=sys.stderr)
            return 1
        files = written(found)
    for file, text in files.items() if given.write else ():
        write_picture(file, text)
    print(f"{len(found)} verdicts are right ({time.monotonic() - started:.0f} s)")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
