"""The public Python names: signatures and docstrings."""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import stabexp
from experiments.reference.markdown import joined, prose, quoted, table
from stabexp import testing

_LEAD = """What `import stabexp` offers. Names are loaded on first use, so the import itself
costs nothing. Every function raises `StabexpError`, or a `ConfigError` below it, with
a message that names the place and the remedy."""

_TESTING = """What a plug-in of your own must keep: `from stabexp.testing import check_detector`.
See [extending](../extending/index.md)."""


def page() -> str:
    """Return the page."""
    names = [name for name in stabexp.__all__ if not name.startswith("__")]
    values = {name: getattr(stabexp, name) for name in sorted(names, key=str.lower)}
    functions = {name: value for name, value in values.items() if inspect.isfunction(value)}
    classes = {name: value for name, value in values.items() if inspect.isclass(value)}
    checks = {name: getattr(testing, name) for name in testing.__all__}
    blocks = ["# Python", _LEAD, "## Functions", _overview(functions)]
    for name, value in functions.items():
        blocks += _function(name, value, "stabexp.")
    blocks += ["## Classes", _overview(classes)]
    for name, value in classes.items():
        blocks += list(_class(name, value))
    blocks += ["## stabexp.testing", _TESTING, _overview(checks)]
    for name, value in checks.items():
        blocks += _function(name, value, "")
    return joined(*blocks)


def _overview(values: dict[str, Any]) -> str:
    rows = [
        (f"[`{name}`](#{name.lower()})", quoted(_first(value))) for name, value in values.items()
    ]
    return table(("name", "what it is"), rows)


def _first(value: Any) -> str:
    return inspect.cleandoc(inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")


def _function(name: str, value: Any, prefix: str) -> list[str]:
    return [
        f"### {name}",
        f"```text\n{signature(prefix + name, value)}\n```",
        prose(inspect.getdoc(value)),
    ]


def signature(name: str, value: Any, *, skip: int = 0) -> str:
    """Return a signature as one would write it, one parameter a line where it is long."""
    found = inspect.signature(value)
    parameters = list(found.parameters.values())[skip:]
    parts: list[str] = []
    starred = False
    for each in parameters:
        if each.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            starred = True
            parts.append("*")
        starred = starred or each.kind is inspect.Parameter.VAR_POSITIONAL
        parts.append(_parameter(each))
    back = found.return_annotation
    arrow = "" if back is inspect.Signature.empty else f" -> {_clean(str(back))}"
    short = f"{name}({', '.join(parts)}){arrow}"
    if len(short) <= 96:
        return short
    lines = "".join(f"    {part},\n" for part in parts)
    return f"{name}(\n{lines}){arrow}"


def _parameter(each: inspect.Parameter) -> str:
    text = _clean(str(each.replace(default=inspect.Parameter.empty)))
    if each.default is inspect.Parameter.empty:
        return text
    default = each.default
    if isinstance(default, (str, Path)):
        return f'{text} = "{default}"'
    if inspect.isfunction(default):  # its address is another one each time
        return f"{text} = {'…' if '<' in default.__name__ else default.__name__}"
    return f"{text} = {_clean(repr(default))}"


def _clean(text: str) -> str:
    """Return an annotation without the modules that its names are in."""
    return re.sub(r"(?:[a-z_]+\.)+(?=[A-Z])", "", text.replace("'", ""))


def _class(name: str, value: Any) -> Iterator[str]:
    yield f"### {name}"
    yield prose(value.__doc__ if not _generated(value) else "")
    if dataclasses.is_dataclass(value):
        docs = _field_docs(value)
        rows = [
            (f"`{field.name}`", f"`{_clean(str(field.type))}`", quoted(docs.get(field.name, "")))
            for field in dataclasses.fields(value)
            if not field.name.startswith("_")
        ]
        yield table(("field", "type", "meaning"), rows)
    elif hasattr(value, "model_fields") and value.__name__ == "Experiment":
        yield "Its fields are the keys of [the experiment file](experiment_file.md)."
    for method, function in vars(value).items():
        if method.startswith("_") or not (
            inspect.isfunction(function) or isinstance(function, property)
        ):
            continue
        made = function.fget if isinstance(function, property) else function
        if not (doc := inspect.getdoc(made)) or made.__module__.startswith("pydantic"):
            continue
        if isinstance(function, property):
            yield f"#### {name}.{method}"
        else:
            yield f"#### {name}.{method}()"
            yield f"```text\n{signature(method, made, skip=1)}\n```"
        yield prose(doc)


def _generated(value: Any) -> bool:
    return bool(
        dataclasses.is_dataclass(value) and (value.__doc__ or "").startswith(f"{value.__name__}(")
    )


def _field_docs(value: Any) -> dict[str, str]:
    """Return the text under each field of a dataclass."""
    import ast

    tree = ast.parse(textwrap.dedent(inspect.getsource(value)))
    body = tree.body[0].body  # type: ignore[attr-defined]
    found: dict[str, str] = {}
    for before, node in pairwise(body):
        if (
            isinstance(before, ast.AnnAssign)
            and isinstance(before.target, ast.Name)
            and isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
        ):
            found[before.target.id] = " ".join(str(node.value.value).split())
    return found
