"""What belongs where on the site: the order of the pages, in one place.

On a code host nothing of this is seen; there the lists of links in the pages lead on.
"""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

DOCS = Path(__file__).parent

TREE: dict[str, list[tuple[str, list[str]]]] = {
    "index": [
        ("Start", ["tutorial", "how_to/index"]),
        (
            "Understand",
            [
                "decision_tree",
                "causes/index",
                "exact_replay",
                "limits",
                "verdict_protocol",
                "decisions/index",
            ],
        ),
        ("Before a run", ["preflight", "advisers"]),
        ("During a run", ["monitors", "early_warning", "stabilisers", "boards", "events"]),
        (
            "After a run",
            ["findings", "recovery", "report*", "samples", "mlflow", "notebook", "scripting"],
        ),
        ("Look up", ["reference/index", "systems"]),
        ("Figures", ["benchmark", "verdicts", "trainers"]),
        ("Extend", ["extending/index"]),
        ("More", ["*"]),
    ],
    "how_to/index": [("", ["how_to/*"])],
    "causes/index": [("", ["causes/*"])],
    "decisions/index": [("", ["decisions/*"])],
    "extending/index": [
        (
            "",
            [f"extending/{kind}" for kind in ("detector", "monitor", "intervention", "stabiliser")],
        ),
        ("", ["extending/*"]),
    ],
    "reference/index": [
        ("", ["reference/experiment_file", "reference/commands", "reference/python"]),
        ("", ["reference/*"]),
    ],
}
"""Page → (caption, pages or patterns below it), in order. A page that is not there is left out."""


def pages() -> list[str]:
    """Return the names of all pages, without `.md`."""
    found = sorted(path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md"))
    return [page for page in found if not page.startswith("_")]


def placed() -> dict[str, list[tuple[str, list[str]]]]:
    """Return the tree with patterns resolved, every page in one place only."""
    known = pages()
    named = {entry for parts in TREE.values() for _, entries in parts for entry in entries}
    taken = {"index"}
    result: dict[str, list[tuple[str, list[str]]]] = {}
    # Pages deeper down first: what has a place there is not found by the "*" of the front page.
    for page in sorted(TREE, key=lambda name: -name.count("/")):
        if page not in known:
            continue
        result[page] = []
        for caption, entries in TREE[page]:
            here: list[str] = []
            for entry in entries:
                fits = [
                    name
                    for name in known
                    if fnmatch(name, entry)
                    and name not in taken
                    and (name == entry or name not in named)
                    and name != page
                ]
                here += fits
                taken.update(fits)
            if here:
                result[page].append((caption, here))
    return result


def append(app: object, name: str, source: list[str]) -> None:
    """Add the hidden tables of contents of a page to its text."""
    for caption, entries in placed().get(name, []):
        options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
        lines = "\n".join([*options, "", *(f"/{entry}" for entry in entries)])
        source[0] += f"\n\n```{{toctree}}\n{lines}\n```\n"
