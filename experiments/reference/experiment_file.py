"""Every key of the experiment file: one walk over its typed sections."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from experiments.reference.markdown import (
    default_words,
    joined,
    prose,
    settings_table,
    table,
    type_words,
    yaml_words,
)
from stabexp.experiment import Experiment

_LEAD = """Every key of `stabexp run exp.yaml`, with what it takes. `stabexp schema` prints the
same as a JSON schema for your editor, `-o key=value` replaces one on the command
line, and `stabexp.run(train, batch={"size": 8})` does in Python. A key that does not
exist is refused with its line and the nearest one that does."""

_TYPES = """Values are read by the type their key has, not by YAML 1.1's rules: `3e-4` is a
number, `on` is text, and `12:30` is what you typed. Where a key takes anything (the
`args` of your own class), YAML 1.2 decides."""

_EXAMPLE_HEAD = (
    """The file with every key at its default. Give `task` and `optimizer`, or `train` alone."""
)

_PLUGINS = {
    "monitors": "[monitors](monitors.md)",
    "detectors": "[detectors](detectors.md)",
    "stabilisers": "[stabilisers](stabilisers.md)",
    "interventions": "[interventions](interventions.md)",
    "task": "[tasks](tasks.md)",
}


def page() -> str:
    """Return the page."""
    blocks = ["# The experiment file", _LEAD, _TYPES, "## The keys"]
    rows = []
    for name, info in Experiment.model_fields.items():
        meaning = prose(info.description)
        if name in _PLUGINS:
            meaning += f" The names: {_PLUGINS[name]}."
        if _section(info.annotation):
            meaning += f" Its keys: [{name}](#{name})."
        rows.append((f"`{name}`", type_words(info), default_words(info), meaning))
    blocks.append(table(("key", "value", "default", "meaning"), rows))
    for name, section in sections():
        blocks += [f"## {name}", prose(section.__doc__), settings_table(section)]
    blocks += ["## Everything at once", _EXAMPLE_HEAD, f"```yaml\n{example()}```"]
    return joined(*blocks)


def sections() -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield every section by its dotted name, those inside others too."""

    def walk(prefix: str, kind: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
        for name, info in kind.model_fields.items():
            if (inner := _section(info.annotation)) is not None:
                dotted = f"{prefix}.{name}" if prefix else name
                yield dotted, inner
                yield from walk(dotted, inner)

    return walk("", Experiment)


def _section(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((f for a in typing.get_args(annotation) if (f := _section(a))), None)


def example() -> str:
    """Return a file with every key: what has no default is filled in."""
    given = {"name": "my-training", "task": {"name": "mlp"}, "optimizer": {"name": "adamw"}}
    left_out = {"train"}  # it excludes task
    return "".join(_lines(Experiment, given, left_out, ""))


def _lines(
    kind: type[BaseModel], given: dict[str, Any], left_out: set[str], indent: str
) -> Iterator[str]:
    for name, info in kind.model_fields.items():
        if name in left_out:
            continue
        note = " ".join((info.description or "").split())
        note = note.partition(". ")[0].rstrip(".")
        inner = _section(info.annotation)
        if inner is not None and not _listed(info.annotation) and given.get(name) != "":
            yield f"{indent}{name}:  # {note}\n"
            yield from _lines(inner, given.get(name, {}), set(), indent + "  ")
            continue
        if name in given or info.is_required():
            value = given.get(name, name)
        else:
            value = info.get_default(call_default_factory=True)
            if name == "steps":
                value = 200
        yield f"{indent}{name}: {yaml_words(value)}  # {note}\n"


def _listed(annotation: Any) -> bool:
    return typing.get_origin(annotation) is list or any(
        _listed(arg) for arg in typing.get_args(annotation)
    )
