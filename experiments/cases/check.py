"""Runs every case with and without its one right change, and says whether it fails and trains.

`python -m experiments.cases.check` prints a table over three seeds. A case fails when a detector
fires, or silently: the figure that its module calls `TARGET` is missed on data not trained on.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stabexp.experiment import load, program
from stabexp.records import Divergence
from stabexp.training import Run, execute

HERE = Path(__file__).parent

FIXES = {"lr_2": ["optimizer.lr=0.003"], "rnn_no_clip": ["clip=0.25"]}
"""The right change of a case that is a matter of configuration; others take `fixed: true`."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one run of a case."""

    name: str
    seed: int
    fixed: bool
    divergence: Divergence | None
    held_out: float
    """Loss, or another figure that is lower when the model is better, on data not trained on."""
    target: float
    """What a training that went well stays below."""
    steps: int
    seconds: float

    @property
    def trained(self) -> bool:
        """Whether no detector fired and the model is as good as it should be."""
        return self.divergence is None and self.held_out <= self.target

    @property
    def silent(self) -> bool:
        """Whether it failed without any detector firing."""
        return self.divergence is None and not self.trained


def run_case(name: str, *, seed: int, fixed: bool, folder: Path = HERE) -> Outcome:
    """Run a case once, without tracking and without checkpoints."""
    changes = FIXES.get(name, ["train.args.fixed=true"]) if fixed else []
    experiment, _ = load(folder / f"{name}.yaml", [f"seed={seed}", *changes])
    made = program(experiment, base=folder)
    measured: list[float] = []
    started = time.perf_counter()
    run = Run(made.settings)
    if experiment.train is not None:
        train: Any = made.train
        module = sys.modules[train.func.__module__]
        execute(dataclasses.replace(made, train=lambda run: measured.append(train(run))), run)
    else:
        from stabexp.tasks import load_task

        assert experiment.task is not None
        task: Any = load_task(experiment.task.name, experiment.task.args, base=folder)
        module = sys.modules[type(task).__module__]
        execute(made, run)
        measured.append(task.held_out(run.parts.model))
    return Outcome(
        name=name,
        seed=seed,
        fixed=fixed,
        divergence=run.divergence,
        held_out=measured[0],
        target=module.TARGET,
        steps=run.step,
        seconds=time.perf_counter() - started,
    )


def _cell(outcome: Outcome) -> str:
    if outcome.divergence is not None:
        found = outcome.divergence
        return f"{found.detected} ({found.detector}, onset {found.onset})"
    if math.isnan(outcome.held_out):
        return "nan"
    return f"{'trained' if outcome.trained else 'silent'} {outcome.held_out:.3g}"


def main() -> int:
    """Run from the command line; exit code 1 when a case does not fail or is not cured."""
    parser = argparse.ArgumentParser(prog="python -m experiments.cases.check", description=__doc__)
    parser.add_argument("names", nargs="*", help="cases; default: all")
    parser.add_argument("--seeds", default="0,1,2", help="comma-separated; default: 0,1,2")
    parser.add_argument("--variants", action="store_true", help="the cases in variants/ instead")
    arguments = parser.parse_args()
    folder = HERE / "variants" if arguments.variants else HERE
    names = arguments.names or sorted(file.stem for file in folder.glob("*.yaml"))
    right = True
    print("| case | seed | as it is | fixed | target | seconds, both |\n|---|---|---|---|---|---|")
    for name in names:
        for seed in (int(seed) for seed in arguments.seeds.split(",")):
            plain, fixed = (
                run_case(name, seed=seed, fixed=change, folder=folder) for change in (False, True)
            )
            good = fixed.trained and not plain.trained
            right &= good
            seconds = f"{plain.seconds:.1f} + {fixed.seconds:.1f}"
            mark = "" if good else " **wrong**"
            print(
                f"| {name} | {seed} | {_cell(plain)} | {_cell(fixed)}{mark} | {fixed.target} "
                f"| {seconds} |",
                flush=True,
            )
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
