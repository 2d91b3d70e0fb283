"""The instruments of a replay, and the rules that one of them checks of a training step."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from experiments.reference.markdown import figures, joined, prose, quoted, table
from stabexp.instruments import INSTRUMENTS
from stabexp.instruments.rules import Rules

_LEAD = """What watches a replay closely, and the rules of a training step that are checked
there. An instrument is too dear for a training and changes no bit of it; a bisect and
`stabexp check` use them by themselves."""

_RULES = """Each is an invariant that a correctly written loop keeps, whatever its model. `stabexp
bisect` checks them in the unchanged replay, `stabexp check RUN_ID` does for a run
that trained to its end."""


def page() -> str:
    """Return the page."""
    blocks = ["# Instruments and the rules of the step", _LEAD]
    rows = []
    for name, place in INSTRUMENTS.items():
        module, _, kind = place.partition(":")
        made = getattr(import_module(module), kind)
        rows.append((f"`{name}`", quoted((made.__doc__ or "").split("\n\n")[0])))
    blocks.append(table(("instrument", "what it does"), rows))
    made_rules = rules()
    blocks += [f"## The {len(made_rules)} rules", _RULES]
    overview = [
        (f"[`{rule.slug}`](#{rule.slug})", quoted((type(rule).__doc__ or "").split("\n\n")[0]))
        for rule in made_rules
    ]
    blocks.append(table(("rule", "broken when"), overview))
    for rule in made_rules:
        blocks += [f"### {rule.slug}", prose(type(rule).__doc__), *_idea(rule)]
    return joined(*blocks)


def rules() -> list[Any]:
    """Return the rules that can be broken by name, in the order in which they are asked."""
    return [rule for rule in Rules()._rules() if type(rule).__name__ != "GradientLedger"]


def _idea(rule: Any) -> list[str]:
    module = sys.modules[type(rule).__module__]
    file = module.__name__.replace(".", "/") + ".py"
    return [prose(module.__doc__), figures(module), f"Code: [`{file}`](../../{file})"]
