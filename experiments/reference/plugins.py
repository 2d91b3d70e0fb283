"""A page per kind of plug-in: what each one does, its settings, what it costs."""

from __future__ import annotations

import inspect
import sys

from experiments.reference.markdown import figures, joined, prose, settings_table, table
from stabexp.config import Component
from stabexp.schema import components

_HEADS = {
    "detectors": (
        "When a run counts as diverged: the rules of `detectors:`. `stabexp list detectors` prints "
        "this list.",
        "detectors: {loss_spike: {window: 40}, non_finite: {}}",
        "detector",
    ),
    "monitors": (
        "What is measured while a run trains: the names of `monitors:`. `stabexp list monitors` "
        "prints this list; what the figures mean is in [monitors](../monitors.md).",
        "monitors: {standard: {}, activations: {every: 20}}",
        "monitor",
    ),
    "interventions": (
        "What a replay may change, and what a fix sets in a training function of your own: "
        "`stabexp replay RUN_ID --set NAME=DOSE`, or `interventions:` in the experiment file, in "
        "force for the whole run.",
        "interventions: {learning_rate: 0.5, clip_norm: 1.0}",
        "intervention",
    ),
    "stabilisers": (
        "What keeps a training stable while it runs: the names of `stabilisers:`. How they act "
        "together is in [stabilisers](../stabilisers.md).",
        "stabilisers: {adaptive_clip: {}, skip_nonfinite: {}}",
        "stabiliser",
    ),
    "tasks": (
        "What an experiment file can train by name: small real models on data that every machine "
        'has. Your own is a class in a file: `task: {name: "task.py:Product"}`.',
        "task: {name: gpt, args: {width: 64}}\noptimizer: {lr: 1e-3}",
        "",
    ),
}


def page(kind: str) -> str:
    """Return the page of one kind: "detectors", "monitors", …"""
    lead, example, word = _HEADS[kind]
    made = components(kind)
    own = f"Your own: [write a {word}](../extending/{word}.md)." if word else ""
    blocks = [f"# {kind.capitalize()}", f"{lead} {own}".strip(), f"```yaml\n{example}\n```"]
    if kind == "monitors":
        blocks.append(_presets())
    if kind == "detectors":
        from stabexp.detectors import DEFAULT_DETECTORS

        names = ", ".join(f"`{name}`" for name in DEFAULT_DETECTORS)
        blocks.append(f"Without `detectors:` these judge a run: {names}.")
    rows = [(f"[`{name}`](#{_anchor(name)})", prose(_first_line(k))) for name, k in made.items()]
    blocks.append(table(("name", "what it does"), rows))
    for name, component in made.items():
        blocks += _section(kind, name, component)
    return joined(*blocks)


def _section(kind: str, name: str, component: type[Component]) -> list[str]:
    module = sys.modules[component.__module__]
    idea = prose(module.__doc__)
    doc = prose(component.__doc__)
    blocks = [f"## {name}", doc if doc.strip() else "", idea if idea.strip() != doc.strip() else ""]
    blocks.append(settings_table(component))
    if kind == "monitors":
        from stabexp.monitors.costs import cost_words

        if words := cost_words(name):
            blocks.append(f"Time, at its own interval: {words} of a run without monitors.")
    blocks.append(figures(module))
    file = component.__module__.replace(".", "/") + ".py"
    blocks.append(f"Code: [`{file}`](../../{file})")
    return blocks


def _presets() -> str:
    from stabexp.monitors.costs import read_costs
    from stabexp.monitors.presets import PRESET_WORDS, PRESETS

    costs = read_costs()
    models = costs.get("models", {})
    rows = [
        (
            f"`{name}`",
            PRESET_WORDS[name],
            ", ".join(f"`{monitor}`" for monitor in monitors),
            *(f"{costs['presets'][model][name]['over_none']:.3f}" for model in models),
        )
        for name, monitors in PRESETS.items()
    ]
    head = ("preset", "in words", "monitors", *(f"time: {words}" for words in models.values()))
    note = (
        "Time: processor time of the training thread, of a run without monitors; measured by "
        f"`python -m experiments.monitor_cost` on {costs.get('machine', '')}."
    )
    return joined(table(head, rows), note)


def _first_line(kind: type[Component]) -> str:
    return inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0]


def _anchor(name: str) -> str:
    return name.lower()
