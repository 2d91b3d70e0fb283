"""A training function by name or as an object: `train.py:train`, `package.module:train`, `train`.

A replay calls the function in another process, perhaps weeks later. So whichever way it was given,
it comes down to a name under which that process finds the same function again, and what has no
such name is refused before anything is trained.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from stabexp.errors import ConfigError

_REFERENCE = re.compile(r"(?P<source>.+):(?P<name>[^\W\d]\w*(\.[^\W\d]\w*)*)")
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True, slots=True)
class Reference:
    """Where a training function is."""

    name: str
    """`path/to/file.py:function` or `package.module:function`."""
    base: Path
    """Folder that a relative path starts from and a package is looked for in, absolute."""

    @property
    def title(self) -> str:
        """What to call runs of it: the file's or the module's name, and the function's."""
        source, _, function = self.name.rpartition(":")
        stem = Path(source).stem if source.endswith(".py") else source.rpartition(".")[2]
        title = stem if function == stem else f"{stem}.{function}"
        return re.sub(r"[^\w.\- ]+", "-", title)[:80]


def is_reference(text: str) -> bool:
    """Say whether a text names a function, and not an experiment file."""
    found = _REFERENCE.fullmatch(text)
    if found is None or Path(text).exists():
        return False
    source = found["source"]
    if source.endswith((".yaml", ".yml")):
        return False
    return source.endswith(".py") or _MODULE.fullmatch(source) is not None


def find_function(name: str, *, base: Path) -> Callable[..., Any]:
    """Return the function that a reference names.

    Raises:
        ConfigError: If the file, the module or the function is missing, or it cannot be called.
    """
    from stabexp.loading import import_from
    from stabexp.tasks import load_function

    if _MODULE.fullmatch(name.rpartition(":")[0]):
        import_from(base.absolute())  # last, so that it hides nothing
    return load_function(name, base=base)


def reference_to(function: Callable[..., Any], *, folder: Path) -> Reference:
    """Return the name under which other processes find a function that was given as an object.

    Args:
        function: Defined with `def` at the top level of a file, or in a class that is.
        folder: The working directory; the name of a file below it is relative to it.

    Raises:
        ConfigError: If there is no such name.
    """
    name = _name(function)
    module = sys.modules.get(function.__module__)
    file = getattr(module, "__file__", None)
    code = getattr(inspect.unwrap(function), "__code__", None)
    if module is None or file is None or code is None or code.co_filename.startswith("<"):
        raise _refused(
            name,
            "is in no Python file (it was typed into an interpreter or a notebook, or is not "
            "written in Python)",
            "put it into a file and import it from there",
        )
    _check_found_again(function, name, module)
    path = Path(file).resolve()
    dotted = _dotted_name(module)
    if "." in dotted or path.name == "__init__.py":
        return Reference(f"{dotted}:{name}", _package_root(path, dotted))
    folder = folder.resolve()
    source = path.relative_to(folder) if path.is_relative_to(folder) else path
    return Reference(f"{source.as_posix()}:{name}", folder)


def _name(function: Any) -> str:
    name = getattr(function, "__qualname__", None)
    if isinstance(function, functools.partial):
        name = getattr(function.func, "__qualname__", "the function")
        raise _refused(
            f"partial({name}, …)",
            "has no name",
            f"pass {name} itself, and its arguments with args={{…}}",
        )
    if not isinstance(name, str) or inspect.isclass(function):
        kind = "class" if inspect.isclass(function) else type(function).__name__
        raise _refused(
            name or repr(function), f"is a {kind}, not a function", "write a function that calls it"
        )
    if inspect.ismethod(function) and not inspect.isclass(function.__self__):
        raise _refused(
            name,
            "is the method of an object, which another process does not have",
            "write a function that makes the object and calls it",
        )
    if "<lambda>" in name:
        raise _refused("a lambda", "has no name", "write it with def at the top level of a file")
    if "<locals>" in name:
        raise _refused(
            name.replace(".<locals>.", "."),
            "is defined inside another function (a decorator without functools.wraps does so too)",
            "move it to the top level of its file, and pass what it needs with args={…}",
        )
    return name


def _refused(what: str, why: str, remedy: str) -> ConfigError:
    return ConfigError(
        f"run: {what} {why}, so a replay in another process could not find it; {remedy}"
    )


def _check_found_again(function: Any, name: str, module: ModuleType) -> None:
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found != function:
        raise _refused(
            name,
            f"is not what {module.__name__} calls so (it was decorated or defined again)",
            "pass the one that the file has under this name",
        )


def _dotted_name(module: ModuleType) -> str:
    """Return the name to import a module by, also of the one that `python -m` runs."""
    spec = module.__spec__
    return spec.name if module.__name__ == "__main__" and spec is not None else module.__name__


def _package_root(path: Path, dotted: str) -> Path:
    """Return the folder that holds a module's outermost package."""
    depth = dotted.count(".") + (path.name == "__init__.py")
    return path.parents[min(depth, len(path.parents) - 1)]
