"""A plug-in by its name in the experiment file: a built-in one, or a class of the user's own.

`loss_spike` is in a package's table. `watch.py:Watch` and `package.module:Watch` name a class in a
file beside the experiment file, or in any package: the same names as those of tasks and training
functions, so a replay in another process finds the same class again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from stabexp.config import Component, Document, Location, suggest, validate
from stabexp.errors import ConfigError
from stabexp.loading import import_from, load_object

_C = TypeVar("_C", bound=Component)


def component(
    table: Mapping[str, type[_C]],
    kind: str,
    name: str,
    args: Any,
    *,
    parent: type[_C] | None = None,
    base: Path | None = None,
    document: Document | None = None,
) -> _C:
    """Return the plug-in called `name`, built from its arguments.

    Args:
        table: The package's plug-ins by YAML name.
        kind: The section they stand in: "detectors", "monitors", …
        name: Which one: a name of the table, or a reference to a class derived from `parent`.
        args: Its arguments; None for none.
        parent: What a class of the user's own derives from; None allows the table's names only.
        base: Folder that file references start from: the experiment file's; None: the current one.
        document: Where name and arguments were given, for messages.

    Raises:
        ConfigError: If no plug-in has this name, it cannot be loaded, or an argument is wrong.
    """
    given = document or Document("", {})
    made = plugin_class(table, kind, name, parent=parent, base=base, document=given)
    values = {kind: {name: dict(args or {})}}
    own = Document(given.name, values, given.lines, given.origins)
    return validate(made, own, at=(kind, name))


def plugin_class(
    table: Mapping[str, type[_C]],
    kind: str,
    name: str,
    *,
    parent: type[_C] | None,
    base: Path | None = None,
    document: Document | None = None,
) -> type[_C]:
    """Return the class of the plug-in called `name`; see `component`."""
    if name in table:
        return table[name]
    given = document or Document("", {})
    at = (kind, name)
    word = kind[:-1]
    if parent is None or not is_reference(name):
        own = "" if parent is None else "; your own is 'path/to/file.py:Class'"
        raise ConfigError(f"{given.place(at)}: unknown {word}; {suggest(name, list(table))}{own}")
    ours = parent

    def fits(value: Any) -> bool:
        return isinstance(value, type) and issubclass(value, ours) and value is not ours

    try:
        if base is not None and not _is_file(name):
            import_from(base.absolute())  # last, so that it hides nothing
        made = load_object(name, what=word, base=base, like=fits)
    except ConfigError as error:
        raise _placed(given, at, str(error).removeprefix(f"{word} {name}: ")) from error
    if not fits(made):
        raise _placed(
            given, at, f"is not a {word}; derive it from {ours.__module__}.{ours.__qualname__}"
        )
    if missing := sorted(getattr(made, "__abstractmethods__", ())):
        raise _placed(given, at, f"does not define {', '.join(missing)}; add it to the class")
    assert isinstance(made, type)
    return made


def is_reference(name: str) -> bool:
    """Say whether a plug-in's name stands for a class of the user's own."""
    source, separator, _ = name.rpartition(":")
    return bool(separator and source)


def own_classes(
    sections: Iterable[tuple[str, Mapping[str, Any], type[Component]]], *, base: Path
) -> tuple[type[Component], ...]:
    """Return the classes of the user's own among the plug-ins of an experiment.

    Args:
        sections: (kind, name → arguments, what a class of the user's own derives from).
        base: Folder that file references start from.
    """
    return tuple(
        plugin_class({}, kind, name, parent=parent, base=base)
        for kind, named, parent in sections
        for name in named
        if is_reference(name)
    )


def _is_file(name: str) -> bool:
    source = name.rpartition(":")[0]
    return source.endswith(".py") or "/" in source or "\\" in source


def _placed(document: Document, at: Location, problem: str) -> ConfigError:
    return ConfigError(f"{document.place(at)}: {problem}")
