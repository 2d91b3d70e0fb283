"""Text constants in the package's code: what is written down nowhere else as a list."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "stabexp"


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """Return (module below the package, text) of every string constant that is no docstring."""
    found: list[tuple[str, str]] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).as_posix()
        found += [(module, text) for text in _texts(ast.parse(path.read_text("utf-8")))]
    return tuple(found)


def matching(pattern: str, *, without: Iterable[str] = ()) -> set[str]:
    """Return the constants that fit a pattern as a whole, but for those in some folders."""
    compiled, folders = re.compile(pattern), tuple(without)
    return {
        text
        for module, text in texts()
        if compiled.fullmatch(text) and not module.startswith(folders or ("\0",))
    }


def explained(
    what: str, found: set[str], meanings: Mapping[str, str], *, place: str
) -> dict[str, str]:
    """Return what is in the code and not among the meanings, by the text below its constant.

    Raises:
        SystemExit: If one has no meaning in either place, or a meaning has nothing in the code.
    """
    documented = {text: doc for text, doc in _documented() if text in found}
    if missing := sorted(found - set(meanings) - set(documented)):
        raise SystemExit(f"{what} without a meaning: {', '.join(missing)}; add it in {place}")
    if gone := sorted(set(meanings) - found):
        raise SystemExit(f"{what} no longer in the code: {', '.join(gone)}; remove it in {place}")
    return {name: documented[name] for name in sorted(found - set(meanings))}


@cache
def _documented() -> tuple[tuple[str, str], ...]:
    """Return (text, what the string below says) of constants such as `LOG = "notify.log"`."""
    found: list[tuple[str, str]] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for before, node in pairwise(ast.parse(path.read_text("utf-8")).body):
            value = getattr(before, "value", None)
            if (
                isinstance(before, (ast.Assign, ast.AnnAssign))
                and isinstance(value, ast.Constant)
                and isinstance(value.value, str)
                and isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
            ):
                found.append((value.value, " ".join(str(node.value.value).split())))
    return tuple(found)


def _texts(tree: ast.AST) -> Iterator[str]:
    docs = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value
