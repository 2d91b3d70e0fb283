"""YAML → validated objects, and errors that say which key is wrong, where, and what is allowed.

YAML 1.1 reads `3e-4` as a string, `on` as true and `12:30` as 750. So scalars are kept as the text
that was typed, and the type a key is declared with decides what they become. Only where a key takes
anything (the `args` of a user's own class) is the type guessed, by the rules of YAML 1.2.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pydantic
import yaml
from pydantic import BaseModel, ConfigDict

from stabexp.errors import ConfigError

Location = tuple[str | int, ...]

UNSHOWN = ("on_event",)
"""Sections whose values no message repeats: there may be a secret in them."""


class Settings(BaseModel):
    """A typed section of the experiment file; the docstring under a field is its documentation."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


class Component(Settings):
    """A plug-in that is its own configuration: one file, one class, one YAML name."""


@dataclass(frozen=True)
class Document:
    """Values as typed in a file, with the line each one came from."""

    name: str
    """What to call the document in messages: usually its path."""
    values: dict[str, Any]
    lines: Mapping[Location, int] = field(default_factory=dict)
    origins: Mapping[Location, str] = field(default_factory=dict)
    """Where a value came from when not from the file: "-o optimizer.lr=1"."""

    def place(self, where: Location) -> str:
        """Return "exp.yaml:14: detectors.loss_spike" for the deepest known part of `where`."""
        dotted = ".".join(str(part) for part in where)
        for length in range(len(where), -1, -1):
            prefix = where[:length]
            if prefix in self.origins:
                return f"{self.origins[prefix]}: {dotted}"
            if prefix in self.lines:
                line = f"{self.name}:{self.lines[prefix]}"
                return f"{line}: {dotted}" if dotted else line
        return f"{self.name}: {dotted}" if self.name and dotted else self.name or dotted

    def to_json(self) -> dict[str, Any]:
        """Return name and values, JSON-ready; quoted text keeps its mark."""
        return {"name": self.name, "values": _mark_quoted(self.values)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Document:
        """Return the document that `to_json` was called on, without its line numbers."""
        return cls(data["name"], _restore_quoted(data["values"]))


_QUOTED = "\u0000quoted"


def _mark_quoted(values: Any) -> Any:
    if isinstance(values, dict):
        return {key: _mark_quoted(item) for key, item in values.items()}
    if isinstance(values, list):
        return [_mark_quoted(item) for item in values]
    return {_QUOTED: str(values)} if isinstance(values, Quoted) else values


def _restore_quoted(values: Any) -> Any:
    if isinstance(values, dict):
        if set(values) == {_QUOTED}:
            return Quoted(values[_QUOTED])
        return {key: _restore_quoted(item) for key, item in values.items()}
    return [_restore_quoted(item) for item in values] if isinstance(values, list) else values


def read_document(path: Path) -> Document:
    """Read a YAML file without deciding any types.

    Raises:
        ConfigError: If it is missing, unreadable, empty, not YAML, or not a mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if path.is_symlink():
            raise ConfigError(f"{path}: a link to {path.readlink()}, which is not there") from None
        near = difflib.get_close_matches(path.name, _siblings(path), n=1)
        hint = f"; did you mean '{path.parent / near[0]}'?" if near else ""
        raise ConfigError(f"{path}: no such file{hint}") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a directory; name a YAML file in it") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start}); is it YAML?") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    return parse_document(text, name=str(path))


def _siblings(path: Path) -> list[str]:
    return [p.name for p in path.parent.glob("*") if p.suffix in {".yaml", ".yml"}]


def parse_document(text: str, *, name: str = "<text>") -> Document:
    """Parse YAML text without deciding any types; see `read_document`."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"{name}{line}: not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: not valid YAML: {error}") from None
    if root is None:
        raise ConfigError(f"{name}: the file is empty; `stabexp schema` shows what goes in it")
    lines: dict[Location, int] = {(): root.start_mark.line + 1}
    try:
        values = _build(root, (), lines, name)
    except RecursionError:
        raise ConfigError(
            f"{name}: nested without end; an alias (*) stands inside its own anchor (&)"
        ) from None
    if not isinstance(values, dict):
        raise ConfigError(f"{name}:{lines[()]}: expected keys and values, found {_kind(values)}")
    return Document(name=name, values=values, lines=lines)


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return "a list"
    return "nothing" if value is None else f"the single value {value!r}"


def _build(node: yaml.Node, where: Location, lines: dict[Location, int], name: str) -> Any:
    if isinstance(node, yaml.MappingNode):
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                line = key_node.start_mark.line + 1
                raise ConfigError(f"{name}:{line}: a key must be plain text")
            key = key_node.value
            line = key_node.start_mark.line + 1
            if key in result:
                first = lines[(*where, key)]
                raise ConfigError(f"{name}:{line}: {key}: given twice (first on line {first})")
            lines[(*where, key)] = line
            result[key] = _build(value_node, (*where, key), lines, name)
        return result
    if isinstance(node, yaml.SequenceNode):
        items = []
        for index, item in enumerate(node.value):
            lines[(*where, index)] = item.start_mark.line + 1
            items.append(_build(item, (*where, index), lines, name))
        return items
    if node.tag == "tag:yaml.org,2002:null":
        return None
    plain = isinstance(node, yaml.ScalarNode) and not node.style
    return str(node.value) if plain else Quoted(node.value)


class Quoted(str):
    """A scalar that was quoted or written as a block: it stays text wherever types are guessed."""

    __slots__ = ()


_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(_[0-9]+)*(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


def guess(value: Any) -> Any:
    """Return values as YAML 1.2 would type them: `3e-4` a number, `on` text, `"1"` text."""
    if isinstance(value, Mapping):
        return {key: guess(item) for key, item in value.items()}
    if isinstance(value, list):
        return [guess(item) for item in value]
    if isinstance(value, Quoted):
        return str(value)
    return _guess_scalar(value) if isinstance(value, str) else value


def _guess_scalar(text: str) -> bool | int | float | str:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if text.lower() in {".inf", "+.inf", "-.inf", ".nan"}:
        return float(text.replace(".", ""))
    if not _NUMBER.fullmatch(text):
        return text
    return float(text) if set(text) & set(".eE") else int(text)


def override(document: Document, assignments: Iterable[str]) -> Document:
    """Return the document with `key.sub=value` assignments applied, in order.

    The value is YAML, so `-o clip=null` and `-o optimizer.betas=[0.9,0.95]` work.
    """
    values = _copy(document.values)
    origins = dict(document.origins)
    for text in assignments:
        key, separator, value_text = text.partition("=")
        where: Location = key_parts(key.strip())
        # What is told of these is no place for a password that somebody typed.
        shown = f"-o {key}=…" if where[0] in UNSHOWN else f"-o {text}"
        if not separator or not all(where):
            raise ConfigError(f"{shown}: expected key=value, for example -o optimizer.lr=3e-4")
        lines: dict[Location, int] = {}
        try:
            node = yaml.compose(value_text, Loader=yaml.SafeLoader)
        except yaml.YAMLError as error:
            problem = getattr(error, "problem", None) or error
            raise ConfigError(f"{shown}: the value is not valid YAML: {problem}") from None
        value = None if node is None else _build(node, where, lines, shown)
        _assign(values, where, value, shown)
        origins[where] = shown
    return Document(document.name, values, _lines_left(document, origins), origins)


_WITH_REFERENCE = re.compile(r"(?P<section>\w+)\.(?P<name>[^=]+:\w+)(\.(?P<rest>.+))?")


def key_parts(key: str) -> tuple[str, ...]:
    """Return the parts of a dotted key; the name of a class in a file is one: "watch.py:Watch"."""
    if (found := _WITH_REFERENCE.fullmatch(key)) is None:
        return tuple(key.split("."))
    rest = found["rest"].split(".") if found["rest"] else []
    return (found["section"], found["name"], *rest)


def patched(document: Document, patch: Mapping[str, Any], *, name: str = "patch") -> Document:
    """Return the document with dotted keys set to plain values, as a verdict's fix names them."""
    values = _copy(document.values)
    origins = dict(document.origins)
    for key, value in patch.items():
        where: Location = key_parts(key)
        _assign(values, where, value, name)
        origins[where] = name
    return Document(document.name, values, _lines_left(document, origins), origins)


def _lines_left(document: Document, origins: Mapping[Location, str]) -> dict[Location, int]:
    """Return the lines of what was not replaced: about what was, the file says nothing."""
    replaced = set(origins)
    return {
        where: line
        for where, line in document.lines.items()
        if not any(where[:length] in replaced for length in range(1, len(where) + 1))
    }


def _copy(values: Any) -> Any:
    if isinstance(values, dict):
        return {key: _copy(item) for key, item in values.items()}
    return [_copy(item) for item in values] if isinstance(values, list) else values


def _assign(values: dict[str, Any], where: Location, value: Any, origin: str) -> None:
    for part in where[:-1]:
        inner = values.get(str(part))
        if isinstance(inner, list):
            raise ConfigError(
                f"{origin}: '{part}' is a list; set the whole of it, for example -o {part}=[…]"
            )
        if not isinstance(inner, dict):
            inner = {} if inner is None else {"name": inner}
            values[str(part)] = inner
        values = inner
    values[str(where[-1])] = value


_S = TypeVar("_S", bound=BaseModel)


def validate(kind: type[_S], document: Document, *, at: Location = ()) -> _S:
    """Return the document's values, or those below `at`, as an object of `kind`.

    Raises:
        ConfigError: With every mistake on a line of its own, each naming place, value and remedy.
    """
    values: Any = document.values
    for part in at:
        values = values[part]
    try:
        return kind.model_validate(values)
    except pydantic.ValidationError as error:
        messages = [_explain(kind, document, at, detail) for detail in error.errors()]
        raise ConfigError("\n".join(_joined(messages))) from None


def _joined(messages: Iterable[str]) -> Iterator[str]:
    """Make one line of what the members of a union expected of the same value."""
    groups: dict[tuple[str, str], list[str]] = {}
    for message in dict.fromkeys(messages):
        place, expected, rest = message.partition(": expected ")
        wanted, found, value = rest.rpartition(", found ")
        if expected and found:
            groups.setdefault((place, value), []).append(wanted)
        else:
            groups[message, ""] = []
    for (place, value), members in groups.items():
        yield f"{place}: expected {' or '.join(members)}, found {value}" if members else place


def _explain(kind: type[BaseModel], document: Document, at: Location, detail: Any) -> str:
    loc: Location = (*at, *_readable(detail["loc"]))
    place = document.place(loc)
    value = detail.get("input")
    match detail["type"]:
        case "extra_forbidden":
            allowed = allowed_keys(kind, loc[len(at) : -1])
            return f"{place}: unknown key; {suggest(str(loc[-1]), allowed)}"
        case "missing":
            return f"{place}: is missing; add it"
        case "value_error" | "assertion_error":
            return _explain_value(document, loc, detail["msg"].removeprefix("Value error, "))
        case _:
            message = detail["msg"].removeprefix("Input ").removeprefix("should be ")
            message = message.partition(", unable to ")[0]
            if message.startswith("a valid dictionary"):
                message = "keys and values"
            shown = "nothing" if value is None else repr(value if _short(value) else "…")
            return f"{place}: expected {message}, found {shown}"


def _explain_value(document: Document, loc: Location, message: str) -> str:
    """Place a validator's message; one about a deeper key starts with "schedule.warmup_steps: "."""
    head, colon, rest = message.partition(": ")
    inner = (*loc, *head.split("."))
    if colon and (inner in document.lines or inner in document.origins):
        return f"{document.place(inner)}: {rest}"
    return f"{document.place(loc)}: {message}"


def _short(value: Any) -> bool:
    return len(repr(value)) <= 80


def _readable(loc: Sequence[str | int]) -> Location:
    """Drop the parts of a pydantic location that name a member of a union, not a key."""
    return tuple(
        part
        for part in loc
        if isinstance(part, int)
        or not re.search(r"[\[\](]|^function-|^(str|float|int|bool)$", part)
    )


def allowed_keys(kind: type[BaseModel], where: Location) -> list[str]:
    """Return the keys allowed in the section `where` of `kind`, empty when anything goes."""
    for part in where:
        if isinstance(part, int):
            continue  # an entry of a list
        info = kind.model_fields.get(str(part))
        inner = _model_of(info.annotation) if info else None
        if inner is None:
            return []
        kind = inner
    return list(kind.model_fields)


def _model_of(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        if (found := _model_of(inner)) is not None:
            return found
    return None


def suggest(word: str, allowed: Sequence[str]) -> str:
    """Return "did you mean 'window'?" when something is close, else what is allowed."""
    near = difflib.get_close_matches(word, allowed, n=1, cutoff=0.6)
    if near:
        return f"did you mean '{near[0]}'?"
    return f"allowed: {', '.join(sorted(allowed))}" if allowed else "nothing is allowed here"
