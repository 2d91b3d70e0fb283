"""Bisects the seeded faults of every trainer and compares the verdicts with what is known.

    python -m experiments.trainers.verify [hugging_face plain_loop …]

Each module has training functions with a `fault` argument, and in `VERDICTS` what a bisect of each
fault has to find.
"""

from __future__ import annotations

import argparse
import importlib
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import stabexp

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
    expected: str
    found: str
    confidence: float
    trials: int
    steps: int
    seconds: float


def verify(module: str, *, root: Path) -> Iterable[Row]:
    """Yield a row per function and fault of a module, the healthy training first."""
    verdicts = importlib.import_module(f"experiments.trainers.{module}").VERDICTS
    for function in FUNCTIONS[module]:
        yield _row(module, function, None, "healthy", root)
        for fault in ONLY.get(function, tuple(verdicts)):
            yield _row(module, function, fault, verdicts[fault], root)


def _row(module: str, function: str, fault: str | None, expected: str, root: Path) -> Row:
    started = time.monotonic()
    run = stabexp.run(
        f"{HERE / module}.py:{function}",
        root=root,
        args={"fault": fault},
        threads=1,
        checkpoint={"every": 10, "keep": 20},
        drain_seconds=0,
    )
    verdict = None
    if run.divergence is not None:
        verdict = stabexp.bisect(run.run_id, root=root, workers=0, drain_seconds=0)
    return Row(
        function=f"{module}.{function}",
        fault=fault or "none",
        expected=expected,
        found="healthy" if verdict is None else verdict.cause,
        confidence=0.0 if verdict is None else verdict.confidence,
        trials=0 if verdict is None else verdict.trials,
        steps=run.steps,
        seconds=time.monotonic() - started,
    )


def table(rows: Sequence[Row]) -> str:
    """Return the rows and the total as Markdown."""
    lines = [
        "| training | fault | expected | verdict | confidence | trials | steps | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        found = row.found if row.found == row.expected else f"**{row.found}** (wrong)"
        confidence = f"{row.confidence:.2f}" if row.trials else "–"
        lines.append(
            f"| {row.function} | {row.fault} | {row.expected} | {found} | {confidence} "
            f"| {row.trials} | {row.steps} | {row.seconds:.0f} |"
        )
    right = sum(row.found == row.expected for row in rows)
    return "\n".join([*lines, "", f"Right: {right} of {len(rows)}."])


def main() -> int:
    """Run from the command line; exit code 1 when a verdict is not the known one."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.trainers.verify",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("modules", nargs="*", help="default: all")
    modules = parser.parse_args().modules or list(FUNCTIONS)
    rows: list[Row] = []
    # The last deliveries to MLflow may still be under way.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for module in modules:
            for row in verify(module, root=Path(folder)):
                print(f"{row.function} {row.fault}: {row.found} ({row.seconds:.0f} s)", flush=True)
                rows.append(row)
    print(f"\n{table(rows)}")
    return 0 if all(row.found == row.expected for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
