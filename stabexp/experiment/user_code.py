"""The files with the user's own training code: the function's, and what it imports beside itself.

What decides a training is rarely in one file: the model is in the next one. The files are found by
reading the `import` statements, not by looking at what is loaded: so the list is the same in every
process, and a module that is imported in the middle of a training is on it too. A module that is
found otherwise (`importlib.import_module(name)`) is not.
"""

from __future__ import annotations

import ast
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import stabexp


def code_files(made: Any) -> tuple[Path, ...]:
    """Return the file of a user's class or function and the files it imports from its folder.

    Args:
        made: Loaded from a file, or imported from a package that is not installed.

    Returns:
        Absolute, its own file first; nothing for what is installed, whose version says enough.
    """
    from stabexp.loading import source_file

    file = source_file(made)
    root = file.parent if file else None
    if file is None:
        loaded_from: str | None = sys.modules[made.__module__].__file__
        file = Path(loaded_from).resolve() if loaded_from else None
        if file is None or _installed(file):
            return ()
        root = file.parents[made.__module__.count(".") + (file.name == "__init__.py")]
    assert root is not None
    found: dict[Path, None] = {}
    waiting = [file]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found[path] = None
            waiting += _imported(path, root)
    return tuple(found)


def _installed(file: Path) -> bool:
    places = [Path(sysconfig.get_paths()[kind]) for kind in ("stdlib", "purelib", "platlib")]
    places.append(Path(stabexp.__file__).parent)
    return any(file.is_relative_to(place.resolve()) for place in places)


def _imported(file: Path, root: Path) -> Iterator[Path]:
    """Yield the files below `root` that a file's import statements name, wherever they stand."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _modules(root, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            start = root
            if node.level:
                start = file.parents[min(node.level, len(file.parents)) - 1]
            parts = node.module.split(".") if node.module else []
            yield from _modules(start, parts)
            for alias in node.names:
                yield from _modules(start, [*parts, alias.name])


def _modules(start: Path, parts: list[str]) -> Iterator[Path]:
    """Yield the files that `import a.b.c` runs: a, a.b and a.b.c, as far as they are there."""
    place = start
    for part in parts:
        place = place / part
        for file in (place.with_name(f"{part}.py"), place / "__init__.py"):
            if file.is_file():
                yield file.resolve()
