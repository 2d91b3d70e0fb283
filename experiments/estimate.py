"""How far the estimate of what a bisect still costs is from the truth.

`python -m experiments.estimate` runs and bisects six experiments and prints what was expected to
be left, and what was left, at the moments at which a quarter, half and three quarters of the steps
were replayed. `--count` bisects seeded failures of the benchmark instead, and prints what each
question took: the figures in `stabexp/bisection/outlook.py`. The six are not among these.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median

import stabexp
from stabexp.bisection.decision_tree import TREE
from stabexp.bisection.outlook import Standing
from stabexp.bisection.trials import Progress
from stabexp.records import TrialRecord, TrialSpec
from stabexp.reporting.pace import Pace

HERE = Path(__file__).parent
NAMES = (
    "rate_too_high_mlp",
    "no_warmup_gpt",
    "tiny_batch_rnn",
    "outlier_sample_mlp",
    "fp16_overflow_two_tower",
    "unclipped_bursts",
)
SHARES = (0.25, 0.5, 0.75)


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What was expected when a replay had ended or a question was asked."""

    clock: float
    steps: int
    replays: int
    left_replays: float
    left_steps: float
    left_seconds: float


@dataclass
class Listener:
    """Hears a bisect's progress and keeps what was expected at every moment."""

    pace: Pace = field(default_factory=Pace)
    moments: list[Moment] = field(default_factory=list)
    asked: list[tuple[str, Standing]] = field(default_factory=list)
    made: dict[str, list[TrialRecord]] = field(default_factory=dict)
    ended: float = 0.0

    def progress(self) -> Progress:
        """Return what to hand to a bisect."""
        return Progress(started=self._started, finished=self._finished, standing=self._standing)

    def _standing(self, standing: Standing) -> None:
        self.asked.append((standing.node, standing))
        self.made.setdefault(standing.node, [])
        self.pace.asked(standing)
        self._keep()

    def _started(self, spec: TrialSpec) -> None:
        self.pace.started(spec)

    def _finished(self, record: TrialRecord, reused: bool) -> None:
        self.pace.finished(record, reused)
        self.made[self.asked[-1][0]].append(record)
        self.ended = time.monotonic()
        self._keep()

    def _keep(self) -> None:
        left = self.pace.left
        assert left is not None
        records = [record for made in self.made.values() for record in made]
        self.moments.append(
            Moment(
                clock=time.monotonic(),
                steps=sum(record.cost for record in records),
                replays=len(records),
                left_replays=left.replays,
                left_steps=left.steps,
                left_seconds=self.pace.seconds(left) or math.nan,
            )
        )


def bisected(file: Path, root: Path, *, workers: int) -> tuple[Listener, stabexp.Verdict] | None:
    """Return what was heard of a bisect, and its verdict; None when the run did not diverge."""
    run = stabexp.run(file, root=root, drain_seconds=0)
    if run.divergence is None:
        return None
    heard = Listener()
    verdict = stabexp.bisect(
        run.run_id, root=root, workers=workers, progress=heard.progress(), drain_seconds=0
    )
    return heard, verdict


def rows(name: str, heard: Listener) -> Iterator[tuple[float, ...]]:
    """Yield, per share of the steps, the estimates and the truth."""
    total, end = heard.moments[-1], heard.ended
    for share in SHARES:
        at = max((m for m in heard.moments if m.steps <= share * total.steps), key=_place)
        yield (
            share,
            at.left_replays,
            total.replays - at.replays,
            at.left_steps,
            total.steps - at.steps,
            at.left_seconds,
            end - at.clock,
        )


def _place(moment: Moment) -> tuple[int, float]:
    return moment.steps, moment.clock


def table(names: Sequence[str], *, root: Path, workers: int) -> None:
    """Bisect the experiments and print how far each estimate was from the truth."""
    print("expected / true")
    print(f"{'experiment':<26} {'done':>5} {'replays':>11} {'steps':>15} {'seconds':>13}")
    off: dict[float, list[tuple[float, float]]] = {share: [] for share in SHARES}
    for name in names:
        found = bisected(HERE / f"{name}.yaml", root, workers=workers)
        if found is None:
            print(f"{name:<26} did not diverge")
            continue
        for share, replays, true_replays, steps, true_steps, seconds, true in rows(name, found[0]):
            off[share].append((_factor(steps, true_steps), _factor(seconds, true)))
            print(
                f"{name:<26} {share:>5.0%} {replays:>5.0f} /{true_replays:>4.0f} "
                f"{steps:>7,.0f} /{true_steps:>6,.0f} {seconds:>6.1f} /{true:>5.1f}",
                flush=True,
            )
    for share, factors in off.items():
        steps = median(abs(math.log(a)) for a, _ in factors)
        seconds = median(abs(math.log(b)) for _, b in factors)
        print(
            f"at {share:.0%} of the steps the median estimate was off by a factor of "
            f"{math.exp(steps):.2f} in steps and {math.exp(seconds):.2f} in seconds"
        )


def _factor(expected: float, true: float) -> float:
    return max(expected, 1e-3) / max(true, 1e-3)


def count(limit: int, *, root: Path) -> None:
    """Bisect seeded failures of the benchmark and print what each question took."""
    from experiments.benchmark.draws import all_draws, selected
    from experiments.benchmark.seeding import write

    order = list(TREE)
    everything: dict[str, list[tuple[int, float, bool]]] = {}
    lasts: list[int] = []
    for draw in selected(all_draws(), limit=limit):
        file = write(draw, root / draw.name / "program")
        found = bisected(file, root / draw.name / "runs", workers=0)
        if found is None:
            continue
        heard, _ = found
        nodes = [node for node in heard.made if node != "proof"]
        lasts.append(order.index(nodes[-1]))
        for node, records in heard.made.items():
            standing = next(told for name, told in heard.asked if name == node)
            length = standing.length if node != "proof" else heard.asked[0][1].length
            steps = sum(record.cost for record in records) / max(1, length)
            everything.setdefault(node, []).append((len(records), steps, node == nodes[-1]))
        print(f"{draw.name}: {len(heard.moments)} moments", flush=True)
    print(f"\n{len(lasts)} bisects")
    for node, values in everything.items():
        reached = sum(node == "proof" or last >= order.index(node) for last in lasts)
        print(
            f'    "{node}": Counted(replays={mean(v[0] for v in values):.1f}, '
            f"lengths={mean(v[1] for v in values):.2f}, "
            f"last={(sum(v[2] for v in values) + 1) / (len(values) + 2):.2f}, "
            f"asked={len(values) / reached:.2f}),"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.estimate", description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES, help="experiments; default: six")
    parser.add_argument("--workers", type=int, default=0, help="worker processes; default: none")
    parser.add_argument("--count", type=int, metavar="N", help="count on N draws instead")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="estimate-", ignore_cleanup_errors=True) as folder:
        if arguments.count:
            count(arguments.count, root=Path(folder))
        else:
            table(arguments.names, root=Path(folder), workers=arguments.workers)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
