"""Names in an experiment file → objects: `path/to/file.py:name` or `package.module:name`.

A file is loaded as a module named after its absolute path, so that two files called `train.py`
never meet and the same file has the same name in every process. Its folder is put at the end of
`sys.path`, so that it can import its neighbours, and so is the place of the package that it is in.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any

from stabexp.config import suggest
from stabexp.errors import ConfigError, StabexpError

_PREFIX = "stabexp_file_"
_loading: ContextVar[str | None] = ContextVar("_loading", default=None)


def load_object(
    reference: str, *, what: str, base: Path | None, like: Callable[[Any], bool]
) -> Any:
    """Return the object that `reference` names.

    Args:
        reference: `path/to/file.py:name` or `package.module:name`.
        what: What the object is to people: "task".
        base: Folder that relative paths start from; None for the current one.
        like: Which of a module's objects to offer when `name` is not among them.

    Raises:
        ConfigError: If the file or module is missing or raises, or holds no such name.
    """
    place = f"{what} {reference}"
    source, separator, name = reference.rpartition(":")
    if not (separator and source and name):
        raise ConfigError(f"{place}: expected 'path/to/file.py:name' or 'package.module:name'")
    value: Any = load_module(source, place=place, base=base)
    for part in name.split("."):
        if not hasattr(value, part):
            offered = [key for key, item in vars(value).items() if _public(key) and like(item)]
            raise ConfigError(f"{place}: no '{part}' in {source}; {suggest(part, offered)}")
        value = getattr(value, part)
    return value


def load_module(source: str, *, place: str, base: Path | None) -> ModuleType:
    """Return the module in `path/to/file.py`, or the one called `package.module`.

    Args:
        source: Which of the two.
        place: What messages begin with.
        base: Folder that relative paths start from; None for the current one.

    Raises:
        ConfigError: If it is missing or raises.
    """
    is_file = source.endswith(".py") or "/" in source or "\\" in source
    return _load_file(source, place, base) if is_file else _import(source, place)


def source_file(value: Any) -> Path | None:
    """Return the file a class or function was loaded from by `load_object`, None for any other."""
    if not value.__module__.startswith(_PREFIX):
        return None
    file = sys.modules[value.__module__].__file__
    return Path(file) if file else None


def being_loaded() -> str | None:
    """Return the file or module whose top level runs right now to find an object in it, or None."""
    return _loading.get()


@contextmanager
def _marked(what: str) -> Iterator[None]:
    token = _loading.set(what)
    try:
        yield
    finally:
        _loading.reset(token)


def _public(name: str) -> bool:
    return not name.startswith("_")


def _load_file(source: str, place: str, base: Path | None) -> ModuleType:
    path = ((base or Path()) / Path(source).expanduser()).resolve()
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        names = [item.name for item in path.parent.glob("*.py")] if path.parent.is_dir() else []
        hint = suggest(path.name, names) if names else "there is no Python file in that folder"
        raise ConfigError(f"{place}: no such file {path}; {hint}") from None
    except OSError as error:
        raise ConfigError(f"{place}: {path} cannot be read: {error.strerror}") from None
    name = f"{_PREFIX}{hashlib.sha256(str(path).encode()).hexdigest()[:12]}_{path.stem}"
    version = hashlib.sha256(content).hexdigest()
    import_from(path.parent)
    _package_importable(path.parent)
    known = sys.modules.get(name)
    if known is not None and known.__dict__.get("__version_hash__") == version:
        return known
    return _execute(name, path, content, version, place)


def _execute(name: str, path: Path, content: bytes, version: str, place: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__dict__["__version_hash__"] = version
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        # Compiled here, not by the loader: its bytecode cache cannot tell two edits in one second.
        with _marked(str(path)):
            exec(compile(content, str(path), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        raise ConfigError(f"{place}: {path}{_line(error, path)}: {_told(error)}") from error
    return module


def _package_importable(folder: Path) -> None:
    """Let a file that lies in a package import that package by its name."""
    root = folder
    while (root / "__init__.py").exists() and root != root.parent:
        root = root.parent
    if root != folder and str(root) not in sys.path:
        sys.path.append(str(root))


_folders: list[str] = []
"""Folders that were put at the end of `sys.path`, the one of the latest file first."""


def import_from(folder: Path) -> None:
    """Let a file import its neighbours, also where a file of another folder has some of that name.

    Two trainings often have a `model.py` each; the one that was loaded first must not be taken for
    the other.
    """
    place = str(folder)
    others = [each for each in _folders if each != place]
    if place in _folders or place not in sys.path:  # else it is there by the user's own doing
        sys.path[:] = [each for each in sys.path if each not in _folders]
        _folders[:] = [place, *others]
        sys.path += _folders
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not file or name.startswith(_PREFIX) or "." in name:
            continue
        beside = Path(file).parent.parent if file.endswith("__init__.py") else Path(file).parent
        same = (folder / f"{name}.py", folder / name / "__init__.py")
        if str(beside) in others and any(each.exists() for each in same):
            for part in [each for each in sys.modules if each.partition(".")[0] == name]:
                del sys.modules[part]


def _import(source: str, place: str) -> ModuleType:
    try:
        with _marked(source):
            return importlib.import_module(source)
    except ModuleNotFoundError as error:
        if error.name and (source == error.name or source.startswith(f"{error.name}.")):
            remedy = "install it, or name a file: 'path/to/file.py:name'"
            raise ConfigError(f"{place}: no module named '{error.name}'; {remedy}") from None
        raise ConfigError(f"{place}: importing {source} raised {_told(error)}") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{place}: importing {source} raised {_told(error)}") from error


def _told(error: BaseException) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return text if isinstance(error, StabexpError) else f"{type(error).__name__}: {text}"


def _line(error: BaseException, path: Path) -> str:
    if isinstance(error, SyntaxError):
        return f":{error.lineno}"
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(path)
    ]
    return f":{lines[-1]}" if lines else ""
