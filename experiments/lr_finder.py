"""Is the rate that `lr-find` suggests a good one? Beside three other ways to read the same ramp.

For each small task, optimizer and seed the ramp is made once and read in four ways. Then a
training from scratch at each figure, and at 3 and 10 times that of lr-find, shows whether it holds,
and what loss it reaches, next to the best of a grid of fixed rates. The rule was made on two tasks;
the others were looked at once.

    python -m experiments.lr_finder --write docs/advisers.md
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from stabexp.advice.lr_finder import Probe, probe
from stabexp.advice.rate_curve import BETA, SHARE, STOP, Smoothed, suggest
from stabexp.advice.rates import RateRamp
from stabexp.advice.trial_training import train_once
from stabexp.config import Document, validate
from stabexp.errors import StabexpError
from stabexp.experiment import Experiment, program
from stabexp.training import Program

MADE_ON = ("mlp", "gpt")
SCORED_ON = ("cnn", "rnn", "lstm", "two_tower", "weighted_mlp")
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adamw": {"name": "adamw"},
    "sgd": {"name": "sgd", "momentum": 0.9},
}
STEPS, WARMUP = 100, 30
TIMES = (1, 3, 10)
GRID = tuple(10 ** (2 * k / 3) for k in range(-6, 1))
"""1e-4 to 1, three in two decades."""
NEAR = 1.25
"""A loss this many times the best of the grid, give or take 0.02, is as good."""

RULES = ("lr-find", "as stated", "1 × steepest", "0.1 × lowest")
BEGIN, END = "<!-- measured -->", "<!-- /measured -->"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One task, optimizer and seed."""

    task: str
    optimizer: str
    seed: int
    best: float
    """Lowest loss of the grid."""
    best_rate: float
    figures: dict[str, float | None]
    """Rule → rate, None where it gives none."""
    losses: dict[str, list[float]] = field(default_factory=dict)
    """Rule → the losses reached at 1 time its rate, of lr-find also at 3 and 10; Inf: not held."""


def of_task(task: str, optimizer: str, seed: int) -> Program:
    """Return the training of a built-in task."""
    values = {
        "name": task,
        "task": task,
        "seed": seed,
        "threads": 1,
        "steps": STEPS,
        "optimizer": OPTIMIZERS[optimizer],
    }
    built: Program = program(validate(Experiment, Document(task, values)), base=Path.cwd())
    return built


def as_stated(rates: Sequence[float], losses: Sequence[float]) -> tuple[float, float]:
    """Return the steepest and the lowest rate, read as literally as the document puts it."""
    values: list[float] = []
    total = 0.0
    for count, loss in enumerate(losses, start=1):
        total = BETA * total + (1 - BETA) * loss
        value = total / (1 - BETA**count)
        if not math.isfinite(value) or (values and value > STOP * min(values)):
            break
        values.append(value)
    slopes = [b - a for a, b in pairwise(values)]
    return rates[slopes.index(min(slopes))], rates[values.index(min(values))]


def read(rates: Sequence[float], losses: Sequence[float]) -> dict[str, float | None]:
    """Return the rate that each rule reads off a ramp."""
    smoothed = Smoothed()
    for loss in losses:
        if not smoothed.add(loss):
            break
    try:
        ours: float | None = suggest(rates, losses, smoothed.values).rate
    except StabexpError:
        ours = None
    steepest, lowest = as_stated(rates, losses)
    return dict(zip(RULES, (ours, SHARE * steepest, steepest, 0.1 * lowest), strict=True))


def reached(found: Probe) -> float:
    """Return the loss at the end, Inf where the training did not hold."""
    return found.last_loss if found.held else math.inf


def case(task: str, optimizer: str, seed: int) -> Case:
    """Measure one case."""
    training = of_task(task, optimizer, seed)
    ramp = RateRamp()
    records = train_once(training, (ramp,), steps=ramp.steps, judged=False).records
    figures = read([r.lr for r in records], [r.loss for r in records])

    def at(rate: float | None, warmup: int = 0) -> float:
        if rate is None:
            return math.inf
        return reached(probe(training, rate, warmup=warmup, steps=STEPS))

    grid = [(at(rate), rate) for rate in GRID]
    best, best_rate = min(grid)
    tried = dict.fromkeys(RULES, TIMES[:1]) | {"lr-find": TIMES}
    losses = {rule: [at(_times(figures[rule], by)) for by in tried[rule]] for rule in RULES}
    ours = figures["lr-find"]
    losses["lr-find, warmup"] = [at(_times(ours, by), WARMUP) for by in TIMES]
    return Case(
        task=task,
        optimizer=optimizer,
        seed=seed,
        best=best,
        best_rate=best_rate,
        figures=figures,
        losses=losses,
    )


def _times(rate: float | None, by: float) -> float | None:
    return None if rate is None else rate * by


def page(cases: Sequence[Case]) -> str:
    """Return the tables, as Markdown."""
    lines: list[str] = []
    for title, tasks in (("looked at once", SCORED_ON), ("the rule was made on", MADE_ON)):
        chosen = [case for case in cases if case.task in tasks]
        lines += [
            f"Tasks {title} ({', '.join(tasks)}), {len(chosen)} trainings from scratch of {STEPS} "
            "steps per cell. Held: neither diverged nor ended above its start. Good: within 25 % "
            "of the best loss of seven fixed rates.",
            "",
            "| read off the ramp | held at 1 × | good at 1 × | held at 3 × | good at 3 × "
            "| held at 10 × | good at 10 × |",
            "|---|---|---|---|---|---|---|",
        ]
        for rule in (*RULES, "lr-find, warmup"):
            cells = [
                _count(chosen, rule, index, meets)
                for index in range(len(TIMES))
                for meets in (_held, _good)
            ]
            name = f"lr-find, {WARMUP} steps of warmup" if rule.endswith("warmup") else rule
            lines.append(f"| {name} | {' | '.join(cells)} |")
        lines.append("")
    lines += [
        "| task | optimizer | seed | best of the grid | lr-find | as stated | 1 × steepest "
        "| 0.1 × lowest |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in cases:
        cells = [_cell(each.figures[rule], each.losses[rule][0]) for rule in RULES]
        lines.append(
            f"| {each.task} | {each.optimizer} | {each.seed} | "
            f"{_cell(each.best_rate, each.best)} | {' | '.join(cells)} |"
        )
    lines += ["", "Each cell: the rate, and the loss that a training at 1 × it reached."]
    return "\n".join(lines)


def _held(case: Case, loss: float) -> bool:
    return math.isfinite(loss)


def _good(case: Case, loss: float) -> bool:
    return loss <= NEAR * case.best + 0.02


def _count(
    cases: Sequence[Case], rule: str, index: int, meets: Callable[[Case, float], bool]
) -> str:
    if any(len(c.losses[rule]) <= index for c in cases):
        return "–"
    return f"{sum(meets(c, c.losses[rule][index]) for c in cases)} of {len(cases)}"


def _cell(rate: float | None, loss: float) -> str:
    if rate is None:
        return "none"
    return f"{rate:.2g}: {f'{loss:.3g}' if math.isfinite(loss) else 'did not hold'}"


def main(arguments: Sequence[str]) -> int:
    """Measure and print, or write between the marks of a page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--tasks", default=",".join((*SCORED_ON, *MADE_ON)))
    parser.add_argument("--write", type=Path, help="a page with the marks to write between")
    parser.add_argument("--results", type=Path, help="where to keep the figures, as JSON")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    cases = []
    for task in chosen.tasks.split(","):
        for optimizer in OPTIMIZERS:
            for seed in range(10, 10 + chosen.seeds):
                cases.append(case(task, optimizer, seed))
                print(json.dumps(asdict(cases[-1])), file=sys.stderr, flush=True)
    if chosen.results is not None:
        chosen.results.write_text(json.dumps([asdict(c) for c in cases], indent=1), "utf-8")
    text = page(cases)
    if chosen.write is None:
        print(text)
        return 0
    whole = chosen.write.read_text("utf-8")
    before, _, rest = whole.partition(BEGIN)
    _, _, after = rest.partition(END)
    chosen.write.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
