"""The fix as a piece of YAML to put into the experiment file, beside the values it replaces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from stabexp.config import key_parts, parse_document
from stabexp.errors import ConfigError
from stabexp.reporting.words import clean, one_line


def patch_yaml(fix: Mapping[str, Any], experiment: str = "") -> str:
    """Return dotted keys as nested YAML, each with the value it replaces as a comment.

    Args:
        experiment: Text of the experiment file; without it, or when it cannot be read, the
            comments are left out.
    """
    before: dict[str, Any] = {}
    if experiment.strip():
        try:
            before = parse_document(experiment).values
        except ConfigError:
            before = {}
    tree: dict[str, Any] = {}
    for key, value in fix.items():
        branch = tree
        *parents, last = key_parts(key)
        for part in parents:
            inner = branch.setdefault(part, {})
            branch = inner if isinstance(inner, dict) else branch
        branch[last] = value
    return clean("".join(_yaml_lines(tree, before, "", noted=bool(before))).rstrip("\n"))


def _yaml_lines(tree: Mapping[str, Any], before: Any, indent: str, *, noted: bool) -> Iterable[str]:
    for key, value in tree.items():
        known = isinstance(before, Mapping) and key in before
        old = before[key] if known else None
        was = f"  # was {_before(known, old)}"
        if isinstance(value, Mapping) and value:
            short = known and not isinstance(old, Mapping)
            yield f"{indent}{_scalar(key)}:{was if noted and short else ''}\n"
            if short and old is not None and "name" not in value:
                # "schedule: cosine" is short for its name; a section in its place must keep it.
                yield f"{indent}  name: {_scalar(one_line(old))}\n"
            yield from _yaml_lines(value, old, indent + "  ", noted=noted)
        else:
            plain = noted and not isinstance(old, (Mapping, list))
            yield f"{indent}{_scalar(key)}: {_scalar(value)}{was if plain else ''}\n"


def _before(known: bool, old: Any) -> str:
    return "not set" if not known else "null" if old is None else one_line(old)


def _scalar(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")
