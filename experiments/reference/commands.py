"""Every command with its arguments, options and exit codes, as the command line declares them."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import typer

from experiments.reference.markdown import joined, quoted, table
from stabexp import cli

CODES = {
    "DIVERGED": "the run diverged",
    "NO_VERDICT": "no verdict: inconclusive or marginal; or nothing was found",
    "NOT_REPRODUCED": "the unchanged replay is not the run, so nothing is blamed",
    "FOUND": "something was found",
    "INTERRUPTED": "interrupted; the message says how to go on",
}
"""Constant of `stabexp.cli.app` → what its exit code says."""

_LEAD = """Every command of `stabexp`, with its options and exit codes. A run id may be given as
its beginning, while only one run has it, or as its MLflow run id."""

_ALWAYS = (
    ("0", "done"),
    ("1", "an error; the message says what to do"),
    ("2", "a mistake on the command line or in the experiment file, with its place"),
)


def page() -> str:
    """Return the page."""
    group = typer.main.get_command(cli.app)
    commands: dict[str, Any] = dict(sorted(group.commands.items()))  # type: ignore[attr-defined]
    shared = [param for param in group.params if param.name != "help"]
    overview = [
        (f"[`stabexp {name}`](#stabexp-{name})", quoted(_first(command)))
        for name, command in commands.items()
    ]
    codes = [(str(_code(name)), text) for name, text in CODES.items()]
    blocks = [
        "# Commands",
        _LEAD,
        table(("command", "what it does"), overview),
        "## Exit codes",
        table(("code", "meaning"), [*_ALWAYS, *codes]),
        "Which of them a command can end with stands below it; 0, 1 and 2 every one can.",
    ]
    if shared:
        blocks += ["## Options of every command", _options(shared)]
    for name, command in commands.items():
        blocks += _command(name, command)
    return joined(*blocks)


def _command(name: str, command: Any) -> list[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    words = " ".join(_metavar(each) for each in arguments)
    usage = f"stabexp {name} [OPTIONS] {words}".strip()
    blocks = [
        f"## stabexp {name}",
        quoted(inspect.cleandoc(command.help or "")),
        f"```text\n{usage}\n```",
    ]
    if arguments:
        rows = [
            (f"`{_metavar(each)}`", quoted(each.help or ""), _default(each)) for each in arguments
        ]
        blocks.append(table(("argument", "meaning", "default"), rows))
    if options:
        blocks.append(_options(options))
    codes = [f"{_code(key)} ({CODES[key]})" for key in CODES if key in used_codes(command.callback)]
    if codes:
        blocks.append("Further exit codes: " + " · ".join(codes) + ".")
    return blocks


def _options(options: list[Any]) -> str:
    rows = []
    for each in options:
        value = "" if each.is_flag else f" {_value(each)}"
        names = ", ".join(f"`{name}{value}`" for name in (*each.opts, *each.secondary_opts))
        meaning = quoted(each.help or "")
        if each.envvar:
            meaning += f" Environment: `{each.envvar}`."
        rows.append((names, meaning, _default(each)))
    return table(("option", "meaning", "default"), rows)


def _value(option: Any) -> str:
    """Return what an option takes: TEXT, INTEGER, a range."""
    if option.metavar:
        return str(option.metavar)
    described = getattr(option, "type_descriptor", None)
    if described is None:
        return str(option.type.name).upper()
    kind = described.annotation
    inner = [arg for arg in typing.get_args(kind) if arg is not type(None)]
    while inner:
        kind = inner[0]
        inner = [arg for arg in typing.get_args(kind) if arg is not type(None)]
    words = {int: "INTEGER", float: "FLOAT", str: "TEXT", Path: "PATH"}
    return words.get(kind, getattr(kind, "__name__", "TEXT").upper())


def _metavar(argument: Any) -> str:
    name = argument.name.upper() + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _default(param: Any) -> str:
    value = param.default
    if param.required:
        return "required"
    if value is None or value is False or (isinstance(value, (list, tuple)) and not value):
        return ""
    if callable(value) or type(value).__name__ in {"Sentinel", "ellipsis"}:
        return ""
    shown = " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return f"`{shown}`" if shown and value is not True else ""


def _first(command: Any) -> str:
    return inspect.cleandoc(command.help or "").split("\n\n")[0].replace("\n", " ")


def _code(name: str) -> int:
    return int(getattr(sys.modules["stabexp.cli.app"], name))


def used_codes(function: Any) -> set[str]:
    """Return the exit codes that a command's code, and what it calls of the cli, can end with."""
    found: set[str] = set()
    seen: set[Any] = set()
    waiting = [function]
    while waiting:
        each = inspect.unwrap(waiting.pop())
        if each in seen or not getattr(each, "__module__", "").startswith("stabexp.cli"):
            continue
        seen.add(each)
        module = sys.modules[each.__module__]
        for name in _names(each):
            if name in CODES:
                found.add(name)
            elif name == "Interrupted":
                found.add("INTERRUPTED")
            waiting += _function(module, name)
    return found


def _function(module: ModuleType, name: str) -> Iterator[Any]:
    value = getattr(module, name, None)
    if inspect.isfunction(value) or inspect.isclass(value):
        yield value


def _names(function: Any) -> Iterator[str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError, TypeError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
