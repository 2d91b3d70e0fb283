"""Eight runs whose losses look alike, eight causes: `python -m experiments.eight`.

Each falls for a while and then jumps. The table says what the verdict was, what it rests on, and
which other settings make the crash go away all the same (the maskers). `--picture FILE` draws the
losses.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import stabexp
from experiments.benchmark.draws import Draw, all_draws
from experiments.benchmark.seeding import write
from stabexp.records import StepRecord, Verdict

RUNS = (
    "not_zeroed-mlp-0",
    "rate_jump-mlp-1",
    "huge_sample-mlp-1",
    "first_moment-mlp-0",
    "overflow-mlp-1",
    "unclipped-gpt_post-2",
    "own_cross_entropy-mlp-1",
    "data_and_schedule-mlp-0",
)
"""One draw of the benchmark per cause."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One run and what was found out about it."""

    draw: Draw
    records: Sequence[StepRecord]
    verdict: Verdict


def look(names: Iterable[str], root: Path) -> Iterable[Seen]:
    """Train, bisect and yield every run; all five settings are tried, to show what masks."""
    draws = {draw.name: draw for draw in all_draws()}
    for name in names:
        run = stabexp.run(write(draws[name], root / name), root=root, drain_seconds=0)
        verdict = stabexp.bisect(run.run_id, root=root, workers=0, thorough=True, drain_seconds=0)
        yield Seen(
            draw=draws[name],
            records=stabexp.load(run.run_id, root=root).records,
            verdict=verdict,
        )


def table(seen: Sequence[Seen]) -> str:
    """Return the runs as a Markdown table."""
    lines = [
        "| run | loss jumps at step | real cause | verdict | confidence | what also hides it |",
        "|---|---|---|---|---|---|",
    ]
    for number, one in enumerate(seen, 1):
        verdict = one.verdict
        maskers = [item.variable for item in verdict.ruled_out if item.masker]
        mark = "" if verdict.cause == one.draw.cause else " (wrong)"
        lines.append(
            f"| {number} | {verdict.divergence.onset} | {one.draw.cause} "
            f"| **{verdict.cause}**{mark} | {verdict.confidence:.2f} "
            f"| {', '.join(maskers) or 'none of the five settings'} |"
        )
    return "\n".join(lines)


def draw_losses(seen: Sequence[Seen], file: Path) -> None:
    """Draw the losses of all runs beside each other, each up to its crash."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, math.ceil(len(seen) / 2), figsize=(12, 4.2), sharey=True)
    for number, (axis, one) in enumerate(zip(axes.flat, seen, strict=False), 1):
        first = one.records[0].loss
        losses = [record.loss / first for record in one.records]
        shown = [loss if math.isfinite(loss) else 3.0 for loss in losses]
        axis.plot(shown, lw=0.9, color="#264653")
        axis.axvline(one.verdict.divergence.onset, lw=0.8, color="#c62828", ls=":")
        axis.set_ylim(0, 3)
        axis.set_title(f"{number}", fontsize=9, loc="left")
        axis.tick_params(labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    figure.supylabel("loss ÷ first loss", fontsize=8)
    figure.supxlabel("step", fontsize=8)
    figure.tight_layout()
    figure.savefig(file, dpi=110)


def main() -> int:
    """Run from the command line; exit code 1 when a verdict is not the known one."""
    parser = argparse.ArgumentParser(prog="python -m experiments.eight", description=__doc__)
    parser.add_argument("--picture", type=Path, help="draw the losses into this file")
    arguments = parser.parse_args()
    seen = []
    # The last deliveries to MLflow may still be under way.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for one in look(RUNS, Path(folder)):
            print(f"{one.draw.name}: {one.verdict.cause}", flush=True)
            seen.append(one)
    print(f"\n{table(seen)}")
    if arguments.picture is not None:
        draw_losses(seen, arguments.picture)
    return 0 if all(one.verdict.cause == one.draw.cause for one in seen) else 1


if __name__ == "__main__":
    raise SystemExit(main())
