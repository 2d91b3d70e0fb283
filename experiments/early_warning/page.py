"""The published record as a page: what was reached, on which programs, and what was not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

from experiments.early_warning.measures import EACH, MEASURES, saves
from experiments.early_warning.naive import NAIVE
from experiments.early_warning.scenarios import ABRUPT, CLEAN, GRADUAL
from experiments.early_warning.score import EARLY, Row, Scored, false_alarms, row

HALVES = {"made_on": "rules made on", "scored_on": "scored on"}

HEAD = """# Early warning: how early, how often, how falsely

Written by `python -m experiments.early_warning --write docs/early_warning.md`; the programs are in
`experiments/early_warning/`.

- While a run goes on: `stabilisers: {{early_warning: {{}}}}` in an experiment file, or
  `stabexp.run(train, stabilisers={{"early_warning": {{"measure": "lower_rate"}}}})`.
- Of a run that is over, or of another trainer's log: `stabexp warn RUN_ID`, `stabexp.warn(...)`.
- What it can see depends on what is measured: attention scores and half-precision headroom need
  `monitors: {{layers: {{}}, attention: {{every: 10}}, half_range: {{}}}}`.

Every program is a real training of up to 400 steps. The rules were made on seven families
({made}).
The figures under *scored on* are of seven other families
({other})
and other draws, judged once when the rules were done. What was changed after that look is only how
the growth of an output layer is named (the last column), not when it is warned of.

- **Onset**: the first of three consecutive steps whose loss lies above 1.5 times its healthy median
  (the lowest median of 25 losses in a row so far). No detector is asked.
- **Lead**: steps from the first warning since something went wrong to the onset. A crashed program
  without a warning counts as lead 0 in the median.
- **False alarm**: a warning in a clean run, or in any run before something went wrong.
- Programs whose loss never leaves within the run have no onset; they are listed, not scored.
- In *edge_of_stability* the rate rises from the start, so something is wrong from step 20 on. Long
  leads there are those of a first swell that died down; the crash came with a later one.
"""

EDGE = """
Gradient descent on one and the same batch lives at the edge of stability by nature: its gradient
swells, the loss jumps by a quarter or so, and it comes back. Those alarms are false by the rule
above, and of a real thing. In training on changing batches there is next to nothing of the kind.
"""

SAVING = """
Halving the rate, again while the trend goes on, holds what the rate drives. It cannot hold what
grows by itself: the activations of *half_headroom* are made larger by the program, whatever the
rate; what helps there is a wider format (`keep_fp32`). A measure also changes the course of a run
that lives at the edge, so a loss may leave earlier with it than without. Clipping hardly helps:
what grows in these classes is not the gradient, and an adaptive optimizer does not care for its
size.
"""


def page(halves: Mapping[str, Sequence[Scored]], families: Mapping[str, Iterable[str]]) -> str:
    """Return the page as Markdown."""
    made, other = (", ".join(families[half]) for half in HALVES)
    parts = [HEAD.format(made=made, other=other)]
    parts.append("## Gradual classes\n\n" + _classes(halves, GRADUAL))
    parts.append("## False alarms\n\n" + _false(halves) + EDGE)
    parts.append("## Beside two naive rules\n\n" + _naive(halves))
    parts.append("## What a measure saves\n\n" + _measures(halves["scored_on"]) + SAVING)
    parts.append(
        "## Abrupt classes: not predictable\n\nA blow has no trend before it, and no rule here "
        "claims to see one.\n\n" + _classes(halves, ABRUPT)
    )
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell) for cell in cells) + " |" for cells in rows]
    return "\n".join(lines) + "\n"


def _of(programs: Sequence[Scored], scenario: str) -> list[Scored]:
    return [each for each in programs if each.draw.scenario == scenario]


def _classes(halves: Mapping[str, Sequence[Scored]], scenarios: Iterable[str]) -> str:
    head = ["class", "programs", "crashed", "warned before", f"≥ {EARLY} steps before"]
    head += ["median lead", "class named right"]
    cells = []
    for half, title in HALVES.items():
        for name in scenarios:
            cells.append([f"{name} ({title})", *_figures(row(name, _of(halves[half], name)))])
        every = [each for name in scenarios for each in _of(halves[half], name)]
        cells.append([f"**all** ({title})", *_figures(row("all", every))])
    return _table(head, cells)


def _figures(found: Row) -> list[str]:
    return [
        str(found.programs),
        str(found.crashed),
        f"{found.warned:.0%}",
        f"{found.early:.0%}",
        f"{found.median_lead:g}",
        f"{found.named:.0%}",
    ]


def _false(halves: Mapping[str, Sequence[Scored]]) -> str:
    head = ["clean runs", *(f"{t}: runs, steps, false alarms" for t in HALVES.values())]
    cells = []
    for name, kind in CLEAN.items():
        cells.append(
            [f"{name}: {_sentence(kind)}", *(_count(_of(halves[h], name)) for h in HALVES)]
        )
    cells.append(["**all clean runs**", *(_count(_clean(halves[h])) for h in HALVES)])
    cells.append(
        [
            "**all but one_batch**",
            *(_count([s for s in _clean(halves[h]) if _batched(s)]) for h in HALVES),
        ]
    )
    cells.append(
        [
            "other runs before anything went wrong",
            *(_count([s for s in halves[h] if s.draw.kind != "clean"]) for h in HALVES),
        ]
    )
    return _table(head, cells)


def _clean(programs: Sequence[Scored]) -> list[Scored]:
    return [each for each in programs if each.draw.kind == "clean"]


def _batched(scored: Scored) -> bool:
    return scored.draw.scenario != "one_batch"


def _sentence(kind: type) -> str:
    return (kind.__doc__ or "").split("\n", maxsplit=1)[0].rstrip(".")


def _count(programs: Sequence[Scored]) -> str:
    false, steps, _ = false_alarms(programs)
    share = f" ({10_000 * false / steps:.2g} per 10,000)" if steps >= 10_000 else ""
    return f"{len(programs)}, {steps:,}, **{false}**{share}"


def _naive(halves: Mapping[str, Sequence[Scored]]) -> str:
    head = ["rule (scored on)", "warned before", f"≥ {EARLY} steps before", "median lead"]
    head += ["false alarms per 10,000 clean steps", "clean runs with one"]
    programs = halves["scored_on"]
    gradual = [each for each in programs if each.draw.kind == "gradual"]
    clean = _clean(programs)
    cells = []
    for rule in ("", *NAIVE):
        found = row("all", gradual, rule)
        false, steps, runs = false_alarms(clean, rule)
        cells.append(
            [
                rule or "**stabexp**",
                f"{found.warned:.0%}",
                f"{found.early:.0%}",
                f"{found.median_lead:g}",
                f"{10_000 * false / max(1, steps):.2g}",
                f"{runs} of {len(clean)}",
            ]
        )
    return _table(head, cells)


def _measures(
    programs: Sequence[Scored], saved: Callable[..., tuple[int, int, list[int]]] = saves
) -> str:
    head = ["class", *(f"{measure}: saved (steps won by the others)" for measure in MEASURES)]
    cells = []
    for name in GRADUAL:
        warned = [
            (each.draw, each.left)
            for each in _of(programs, name)
            if each.left is not None and each.told[""].lead > 0
        ]
        line = [name]
        for measure in MEASURES:
            count, of, won = saved(warned, measure)
            line.append(f"{count} of {of}" + (f" (median {median(won):+g})" if won else ""))
        cells.append(line)
    return (
        f"The first {EACH} programs of each class that were warned of, trained again with the\n"
        "measure in force. *Saved*: the loss does not leave until the run's end.\n\n"
        + _table(head, cells)
    )
