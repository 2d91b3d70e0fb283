"""Bisects the seeded faults of every trainer and compares the verdicts with what is known.

    python -m experiments.trainers.verify [hugging_face plain_loop …] [--seeds 0 1 2]
        [--keep rows.jsonl] [--write docs/trainers.md]

Each module has training functions with a `fault` argument, and in `VERDICTS` what a bisect of each
fault has to find.
"""

from __future__ import annotations

import argparse
import importlib
import json
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import stabexp
from stabexp.records import BLAMELESS

HERE = Path(__file__).parent

FUNCTIONS = {
    "plain_loop": ("train",),
    "accelerate_loop": ("train",),
    "hugging_face": ("trainer", "adapters", "sft"),
    "lightning_auto": ("train",),
    "lightning_manual": ("train",),
}
"""Training functions by module."""

ONLY = {"sft": ("lr",)}
"""Faults of a function that cannot have all of them."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One training with one fault, or with none."""

    function: str
    fault: str
    seed: int
    expected: str
    found: str
    confidence: float
    trials: int
    steps: int
    seconds: float


def questions(modules: Iterable[str], seeds: Iterable[int]) -> Iterator[tuple[str, str, str, int]]:
    """Yield module, function, fault and seed of every training, the healthy ones first."""
    for module in modules:
        verdicts = importlib.import_module(f"experiments.trainers.{module}").VERDICTS
        for function in FUNCTIONS[module]:
            for fault in ("none", *ONLY.get(function, tuple(verdicts))):
                for seed in seeds:
                    yield module, function, fault, seed


def answer(module: str, function: str, fault: str, seed: int, *, root: Path) -> Row:
    """Train, bisect when it diverged, and return what was found."""
    verdicts = importlib.import_module(f"experiments.trainers.{module}").VERDICTS
    started = time.monotonic()
    run = stabexp.run(
        f"{HERE / module}.py:{function}",
        root=root,
        args={"fault": None if fault == "none" else fault},
        seed=seed,
        threads=1,
        checkpoint={"every": 10, "keep": 20},
        drain_seconds=0,
    )
    verdict = None
    if run.divergence is not None:
        verdict = stabexp.bisect(run.run_id, root=root, workers=0, drain_seconds=0)
    return Row(
        function=f"{module}.{function}",
        fault=fault,
        seed=seed,
        expected=verdicts.get(fault, "healthy"),
        found="healthy" if verdict is None else verdict.cause,
        confidence=0.0 if verdict is None else verdict.confidence,
        trials=0 if verdict is None else verdict.trials,
        steps=run.steps,
        seconds=time.monotonic() - started,
    )


def table(rows: Sequence[Row]) -> str:
    """Return the rows and the total as Markdown."""
    lines = [
        "| training | fault | seed | expected | verdict | confidence | trials | steps | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        found = row.found if row.found == row.expected else f"**{row.found}** (wrong)"
        confidence = f"{row.confidence:.2f}" if row.trials else "–"
        lines.append(
            f"| {row.function} | {row.fault} | {row.seed} | {row.expected} | {found} "
            f"| {confidence} | {row.trials} | {row.steps} | {row.seconds:.0f} |"
        )
    return "\n".join(lines)


def summary(rows: Sequence[Row]) -> str:
    """Return the counts, beside what naming the learning rate for every crash would have got."""
    faulty = [row for row in rows if row.fault != "none"]
    right = sum(row.found == row.expected for row in faulty)
    named = sum(row.found not in {row.expected, "healthy", *BLAMELESS} for row in faulty)
    quiet = sum(row.found == row.expected for row in rows if row.fault == "none")
    always = sum(row.expected == "learning_rate" for row in faulty)
    return (
        f"Right: {right} of {len(faulty)} faults; {named} of the others name another cause; "
        f"healthy runs left alone: {quiet} of {len(rows) - len(faulty)}. "
        f"Always naming the learning rate: {always} of {len(faulty)}."
    )


PAGE = """# Verdicts in other people's trainers

Made by `python -m experiments.trainers.verify --seeds 0 1 2 --write docs/trainers.md`: the
trainings in `experiments/trainers/`, each with one seeded fault or none. How large a fault is was
chosen on seed 0, so that the run crashes and the fault is what it crashes on; seeds 1 and 2 were
looked at afterwards.

"""


def main() -> int:
    """Run from the command line; exit code 1 when a verdict is not the known one."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.trainers.verify",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("modules", nargs="*", help="default: all")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--keep", type=Path, help="rows are kept in this file, and not made again")
    parser.add_argument("--write", type=Path, help="also write the page to this file")
    given = parser.parse_args()
    known = kept(given.keep)
    rows: list[Row] = []
    # The last deliveries to MLflow may still be under way.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for module, function, fault, seed in questions(given.modules or FUNCTIONS, given.seeds):
            row = known.get((f"{module}.{function}", fault, seed))
            if row is None:
                row = answer(module, function, fault, seed, root=Path(folder))
                if given.keep:
                    with given.keep.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(asdict(row)) + "\n")
            told = f"{row.function} {row.fault} {row.seed}: {row.found} ({row.seconds:.0f} s)"
            print(told, flush=True)
            rows.append(row)
    print(f"\n{table(rows)}\n\n{summary(rows)}")
    if given.write:
        given.write.write_text(f"{PAGE}{summary(rows)}\n\n{table(rows)}\n", "utf-8")
    return 0 if all(row.found == row.expected for row in rows) else 1


def kept(file: Path | None) -> dict[tuple[str, str, int], Row]:
    """Return the rows of an earlier run."""
    lines = file.read_text("utf-8").splitlines() if file and file.exists() else []
    found = [Row(**json.loads(line)) for line in lines]
    return {(row.function, row.fault, row.seed): row for row in found}


if __name__ == "__main__":
    raise SystemExit(main())
