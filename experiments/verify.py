"""Runs every experiment on several seeds and compares the verdicts with what is known.

`python -m experiments.verify` prints a table; `--write docs/verdicts.md` keeps it. Beside our
verdict stand three simpler ways to name a cause from the same replays: always the learning rate,
the first variable that cures in a random order (its expected hit rate), and the first that cures in
a fixed order.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import stabexp
from stabexp.records import VARIABLES, Verdict

HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Row:
    """One experiment on one seed."""

    name: str
    seed: int
    expected: str
    found: str
    confidence: float
    trials: int
    replayed_steps: int
    crash_steps: int
    seconds: float
    cures: tuple[str, ...]

    @property
    def right(self) -> bool:
        """Whether the verdict is the known one."""
        return self.found == self.expected

    @property
    def first_cure(self) -> bool:
        """Whether the first variable that cures, in the fixed order, is the cause."""
        ordered = [variable for variable in VARIABLES if variable in self.cures]
        return bool(ordered) and ordered[0] == self.expected

    @property
    def random_order(self) -> float:
        """Chance that the first variable that cures, in a random order, is the cause."""
        return 1 / len(self.cures) if self.expected in self.cures else 0.0


def verify(names: Iterable[str], seeds: Sequence[int], *, root: Path) -> Iterable[Row]:
    """Yield a row per experiment and seed."""
    for name in names:
        for seed in seeds:
            yield _row(name, seed, root)


def _row(name: str, seed: int, root: Path) -> Row:
    started = time.monotonic()
    file = HERE / f"{name}.yaml"
    result = stabexp.run(file, [f"seed={seed}"], root=root, drain_seconds=0)
    expected = str(stabexp.load(result.run_id, root=root).experiment.expect)
    verdict: Verdict | None = None
    if result.divergence is not None:
        verdict = stabexp.bisect(
            result.run_id, root=root, workers=0, thorough=True, drain_seconds=0
        )
    return Row(
        name=name,
        seed=seed,
        expected=expected,
        found="healthy" if verdict is None else verdict.cause,
        confidence=0.0 if verdict is None else verdict.confidence,
        trials=0 if verdict is None else verdict.trials,
        replayed_steps=0 if verdict is None else verdict.replayed_steps,
        crash_steps=0 if verdict is None else verdict.crash_steps,
        seconds=time.monotonic() - started,
        cures=() if verdict is None else tuple(c.variable for c in verdict.cures if c.robust),
    )


def table(rows: Sequence[Row]) -> str:
    """Return the rows and the totals as Markdown."""
    lines = [
        "| experiment | seed | expected | verdict | confidence | robust cures | trials "
        "| replayed steps ÷ steps to divergence | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        mark = row.found if row.right else f"**{row.found}** (wrong)"
        ratio = f"{row.replayed_steps / row.crash_steps:.0f}" if row.crash_steps else "–"
        confidence = f"{row.confidence:.2f}" if row.crash_steps else "–"
        cures = ", ".join(row.cures) or "–"
        lines.append(
            f"| {row.name} | {row.seed} | {row.expected} | {mark} | {confidence} | {cures} "
            f"| {row.trials} | {ratio} | {row.seconds:.0f} |"
        )
    faults = [row for row in rows if row.expected != "healthy"]
    count = len(faults)
    always = sum(row.expected == "learning_rate" for row in faults)
    by_chance = sum(row.random_order for row in faults)
    lines += [
        "",
        f"Right verdicts: **{sum(r.right for r in rows)} of {len(rows)}**. On the {count} runs "
        "that diverge, the same replays read in simpler ways:",
        "",
        "| way to name the cause | right |",
        "|---|---|",
        f"| stabexp | {sum(r.right for r in faults)} of {count} |",
        f"| always the learning rate | {always} of {count} |",
        f"| first cure, random order (expected) | {by_chance:.1f} of {count} |",
        f"| first cure, fixed order | {sum(r.first_cure for r in faults)} of {count} |",
    ]
    return "\n".join(lines)


def main() -> int:
    """Run from the command line; exit code 1 when a verdict is not the expected one."""
    parser = argparse.ArgumentParser(prog="python -m experiments.verify", description=__doc__)
    parser.add_argument("names", nargs="*", help="experiments; default: all")
    parser.add_argument("--seeds", default="0,1,2", help="comma-separated; default: 0,1,2")
    parser.add_argument("--write", type=Path, help="also write the table to this file")
    arguments = parser.parse_args()
    names = arguments.names or sorted(file.stem for file in HERE.glob("*.yaml"))
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    rows = []
    # The last deliveries to MLflow may still be under way.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for row in verify(names, seeds, root=Path(folder)):
            state = "ok" if row.right else f"WRONG, expected {row.expected}"
            print(
                f"{row.name} seed {row.seed}: {row.found} {state} ({row.seconds:.0f} s)", flush=True
            )
            rows.append(row)
    text = table(rows)
    print(f"\n{text}")
    if arguments.write:
        command = "python -m experiments.verify --write docs/verdicts.md"
        arguments.write.write_text(
            f"# Verdicts on the seeded faults\n\nMade by `{command}`. The rules were not tuned per "
            "experiment, but rules and faults have the same authors: a lead, not a proof.\n\n"
            f"{text}\n",
            "utf-8",
        )
    return 0 if all(row.right for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
