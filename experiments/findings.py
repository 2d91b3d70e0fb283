"""How often findings cry wolf on healthy runs, and how often they name the right cause of bad ones.

Trains the benchmark's programs, healthy (their faults set right) and with one fault each, and reads
the step records alone. Of each program's faults the eight latest in the catalogue are taken, one
draw each: more of data, labels and code, fewer of the rate, than a benchmark run has. Limits and
rules were made on the families that the benchmark tunes on; the held-out families were only scored,
once. `python -m experiments.findings --write docs/findings.md` takes half an hour on two cores;
`--keep DIR` keeps the records, so that scoring again takes seconds.
"""

from __future__ import annotations

import argparse
import pickle
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from experiments.benchmark.draws import Draw, all_draws
from stabexp.detectors import opinion
from stabexp.findings import Finding, findings_of
from stabexp.records import Divergence, StepRecord

HEALTHY_PER_FAMILY = 6
"""Healthy trainings per family: its own, and repaired faults, which differ in seed and recipe."""
FAULTS_PER_FAMILY = 8


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """One training's step records, and what is known of it."""

    name: str
    family: str
    held_out: bool
    cause: str
    """"healthy" for a repaired one."""
    records: Sequence[StepRecord]
    divergence: Divergence | None
    settings: dict[str, Any]


def trainings() -> list[tuple[Draw, bool]]:
    """Return the draws to train, each with whether its fault is set right."""
    chosen: list[tuple[Draw, bool]] = []
    families = dict.fromkeys(draw.family for draw in all_draws())
    for family in families:
        own = [draw for draw in all_draws() if draw.family == family]
        healthy = [draw for draw in own if draw.cause == "healthy"]
        faults = [draw for draw in own if not draw.spare]
        first = list({draw.entry.name: draw for draw in reversed(faults)}.values())
        chosen += [(draw, False) for draw in healthy[:1]]
        chosen += [(draw, True) for draw in first[: HEALTHY_PER_FAMILY - 1]]
        chosen += [(draw, False) for draw in first[:FAULTS_PER_FAMILY]]
    return chosen


def record(draw: Draw, *, fixed: bool) -> Recorded:
    """Train a draw's program once, in this process."""
    from experiments.benchmark.seeding import write
    from stabexp import experiment as experiments
    from stabexp.training.execute import execute
    from stabexp.training.run import Run
    from stabexp.training.seen import ramp

    with tempfile.TemporaryDirectory() as folder:
        file = write(draw, Path(folder), fixed=fixed)
        experiment, _ = experiments.load(file, ["monitors.layers.every=10"])
        program = experiments.program(experiment, base=file.parent)
        records: list[StepRecord] = []
        run = Run(program.settings, on_step=records.append)
        execute(program, run)
    rates = {"lr": max((r.lr for r in records), default=None), "warmup_steps": ramp(records)}
    seen = {**run.seen(), **rates} if run.seen() else {}
    trivial = program.describe().get("expected_initial_loss")
    setup = experiments.setup_of(experiment, trivial_loss=trivial, observed=seen)
    return Recorded(
        name=draw.name,
        family=draw.family,
        held_out=draw.held_out,
        cause="healthy" if fixed else draw.cause,
        records=records,
        divergence=run.divergence,
        settings={k: v for k, v in asdict(setup).items() if v is not None or k == "clip_norm"},
    )


def found_in(run: Recorded) -> tuple[Finding, ...]:
    """Return what `stabexp diagnose` finds in a run."""
    view = None
    if run.divergence is not None:
        view = opinion(run.records, run.divergence, run.settings)
    return findings_of(run.records, divergence=run.divergence, settings=run.settings, opinion=view)


def _windows(records: Sequence[StepRecord], size: int) -> Iterable[Sequence[StepRecord]]:
    for end in sorted({*range(50, len(records), 50), len(records)}):
        if end >= 10:
            yield records[max(0, end - size) : end]


AS_WRITTEN: dict[str, Callable[[Sequence[StepRecord]], bool]] = {
    "exploding: one of the last 5 norms above 5": lambda records: any(
        any(r.grad_norm > 5.0 for r in view) for view in _windows(records, 5)
    ),
    "vanishing: the last 10 norms below 1e-7": lambda records: any(
        len(view) == 10 and all(r.grad_norm < 1e-7 for r in view) for view in _windows(records, 10)
    ),
    "oscillating: the last 20 losses vary by more than half": lambda records: any(
        pstdev(r.loss for r in view) > 0.5 * abs(fmean(r.loss for r in view))
        for view in _windows(records, 20)
    ),
    "a gradient norm above 100": lambda records: any(r.grad_norm > 100 for r in records),
    "a gradient norm above 1000": lambda records: any(r.grad_norm > 1000 for r in records),
}
"""The documents' own rules, as they are written."""


SAME = {"accumulation": "implementation", "labels": "not_learning", "underflow": "precision"}
"""Causes of the taxonomy that a verdict has a wider word for."""


def table(runs: Sequence[Recorded]) -> list[str]:
    """Return the page's tables for some runs."""
    healthy = [run for run in runs if run.cause == "healthy" and run.divergence is None]
    steps = sum(len(run.records) for run in healthy)
    found = {id(run): found_in(run) for run in runs}
    symptoms = Counter(one.symptom for run in healthy for one in found[id(run)])
    any_of = sum(bool(found[id(run)]) for run in healthy)
    lines = [
        f"{len(healthy)} healthy runs, {steps:,} steps.",
        "",
        "| rule | healthy runs it alarms on |",
        "| --- | ---: |",
        f"| **any finding of `stabexp diagnose`** | **{any_of} of {len(healthy)}** |",
    ]
    lines += [f"| … {name.replace('_', ' ')} | {count} |" for name, count in symptoms.most_common()]
    for name, rule in AS_WRITTEN.items():
        count = sum(rule(run.records) for run in healthy)
        lines.append(f"| as written: {name} | {count} of {len(healthy)} |")
    bad = [run for run in runs if run.cause != "healthy" and run.divergence is not None]
    named = [run for run in bad if found[id(run)] and found[id(run)][0].likely]
    told = {
        id(run): [SAME.get(x.cause, x.cause) for x in found[id(run)][0].likely] for run in named
    }
    first = sum(told[id(run)][0] == run.cause for run in named)
    three = sum(run.cause in told[id(run)][:3] for run in named)
    silent = sum(not found[id(run)] for run in bad)
    lines += [
        "",
        f"{len(bad)} runs that diverged for one known cause: a finding in all but {silent}; the "
        f"cause is the first that is named in {first}, among the first three in {three}.",
    ]
    return lines


QUESTIONS = """## The careful questions, and where a bisect asks them

`stabexp diagnose` answers the four questions of a conservative rescue from the records; a bisect
asks the same in its own tree, with replays.

| question | yes | no | nodes of the tree |
| --- | --- | --- | --- |
| within the first steps? | initialisation, warmup | they passed their test | `initialisation`, `warmup` |
| half precision? | loss scaling, casts | overflow, or an operation outside its domain | `precision`, `operation` |
| abnormally large gradients? | lower rate or clipping | data, loss function | `clip_norm`, `learning_rate`, `warmup`; `data`, `operation`, `rules` |
| a checkpoint to go back to? | change one setting and resume | restart carefully | `control` |

"The first 1000 steps" is a tenth of the planned steps, or the warmup, in shorter trainings. "Lower
the rate or clip" is where a rescue ends and a bisect begins: both hide most faults, so neither is
taken for the cause because it cures.
"""  # noqa: E501


def main() -> None:
    """Train, score, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "findings")
    parser.add_argument("--write", type=Path, help="the page to write")
    parser.add_argument("--held-out", action="store_true", help="score the held-out families too")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    options.keep.mkdir(parents=True, exist_ok=True)
    runs = []
    for draw, fixed in trainings():
        file = options.keep / f"{draw.name}{'-fixed' if fixed else ''}.pickle"
        if not file.exists():
            file.write_bytes(pickle.dumps(record(draw, fixed=fixed)))
            print(file.stem, flush=True)
        runs.append(pickle.loads(file.read_bytes()))
    parts = {"Families that the limits were made on": [r for r in runs if not r.held_out]}
    if options.held_out or options.write:
        parts["Held-out families"] = [r for r in runs if r.held_out]
    lines = ["# Findings: false alarms and named causes", "", *(__doc__ or "").splitlines()[2:], ""]
    for title, part in parts.items():
        lines += [f"## {title}", "", *table(part), ""]
    lines.append(QUESTIONS)
    print("\n".join(lines))
    if options.write:
        options.write.write_text("\n".join(lines), "utf-8")


if __name__ == "__main__":
    main()
