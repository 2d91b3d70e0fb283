"""Docstrings, types and settings as Markdown."""

from __future__ import annotations

import ast
import inspect
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from stabexp.records import Cause

_SECTIONS = ("Args:", "Returns:", "Raises:", "Yields:")
_BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
_PLAIN = {int: "integer", float: "number", bool: "true or false", str: "text"}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; line breaks in cells become spaces."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def prose(doc: str | None) -> str:
    """Return a docstring as Markdown: its lists of arguments as bullets, its sources as links."""
    lines = quoted(with_rows(inspect.cleandoc(doc or ""))).splitlines()
    return re.sub(r"\n{3,}", "\n\n", "\n".join(_sectioned(lines)))


def with_rows(text: str) -> str:
    """Make links of "Source rows A1, B2", which name rows of systems.md."""
    return re.sub(
        r"[Ss]ource rows? ((?:[ABC]\d+)(?:(?:, | and )[ABC]\d+)*)",
        lambda found: (
            f"Source: row{'s' if len(found[1]) > 3 else ''} {found[1]} of "
            "[the 49 systems](../systems.md)"
        ),
        text,
    )


def quoted(text: str) -> str:
    """Quote what Markdown would read as something else: names with `_`, `*` and `<`."""
    parts = re.split(r"(`[^`]*`)", text)
    for index in range(0, len(parts), 2):
        part = re.sub(r"(?<![\w/])_(?=\w)|\*|<", lambda found: "\\" + found[0], parts[index])
        parts[index] = re.sub(r"\|\|?([^|\n]{1,60})\|\|?", lambda f: f"`{f[0]}`", part)
    return "".join(parts)


def _sectioned(lines: list[str]) -> Iterator[str]:
    inside = False
    for line in lines:
        if line in _SECTIONS:
            inside = True
            yield f"\n**{line.removesuffix(':')}**\n"
        elif inside and line.startswith("    ") and not line.startswith("     "):
            name, colon, rest = line.strip().partition(": ")
            known = colon and re.fullmatch(r"[\w.*`, ]{1,40}", name)
            yield f"- `{name}`: {rest}" if known else f"- {line.strip()}" if known else line.strip()
        elif inside and line.startswith("     "):
            yield "  " + line.strip()
        else:
            inside = inside and not line.strip()
            yield line


def settings_table(kind: type[BaseModel]) -> str:
    """Return the settings of a component or section as a table, "" where there are none."""
    rows = [
        (f"`{name}`", type_words(info), default_words(info), prose(info.description))
        for name, info in kind.model_fields.items()
    ]
    return table(("setting", "value", "default", "meaning"), rows) if rows else ""


def type_words(info: FieldInfo) -> str:
    """Return what a field takes, with its range."""
    bounds = [
        f"{sign} {getattr(item, key):g}"
        for item in info.metadata
        for key, sign in _BOUNDS.items()
        if getattr(item, key, None) is not None
    ]
    kinds = list(dict.fromkeys(_kinds(info.annotation)))
    empty = [kind for kind in kinds if kind == "empty"]
    words = " or ".join(kind for kind in kinds if kind != "empty")
    return ", or ".join([" ".join([words, ", ".join(bounds)]).strip(), *empty])


def _kinds(annotation: Any) -> Iterator[str]:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        yield from _kinds(args[0])
    elif origin in (typing.Union, types.UnionType):
        for arg in args:
            yield from _kinds(arg)
    elif origin is typing.Literal and set(typing.get_args(Cause)) <= set(args):
        yield "[a cause](causes.md)"
        yield from (f"`{arg}`" for arg in args if arg not in typing.get_args(Cause))
    elif origin is typing.Literal:
        yield from (f"`{arg}`" for arg in args)
    elif annotation is type(None):
        yield "empty"
    elif origin in (list, Sequence):
        yield "list of " + " or ".join(_kinds(args[0]))
    elif origin is tuple:
        shown = ["…" if arg is Ellipsis else " or ".join(_kinds(arg)) for arg in args]
        yield f"[{', '.join(shown)}]"
    elif origin in (dict, Mapping):
        yield f"mapping of name → {' or '.join(dict.fromkeys(_kinds(args[1])))}"
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield "section"
    else:
        yield _PLAIN.get(annotation, "anything")


def default_words(info: FieldInfo) -> str:
    """Return a field's default as YAML has it, "required" without one."""
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return ""
    return f"`{yaml_words(value)}`"


def yaml_words(value: Any) -> str:
    """Return a plain value as YAML, on one line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value or '""'
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {yaml_words(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(yaml_words(item) for item in value) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def figures(module: types.ModuleType) -> str:
    """Return the documented numbers at the top level of a module as a table, "" without any."""
    rows = []
    for before, node in pairwise(ast.parse(inspect.getsource(module)).body):
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            continue
        target = before.targets[0] if isinstance(before, ast.Assign) else None
        name = getattr(target or getattr(before, "target", None), "id", "")
        value = getattr(module, name, None) if name else None
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            rows.append((f"`{name}`", f"{value:,g}", prose(str(node.value.value))))
    return table(("figure", "value", "meaning"), rows) if rows else ""


def joined(*blocks: str) -> str:
    """Return blocks with an empty line between them and one line's end behind."""
    return "\n\n".join(block.strip("\n") for block in blocks if block.strip()) + "\n"
