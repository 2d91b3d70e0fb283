"""Shows, without any bisect, that every fault does what its label says.

`python -m experiments.benchmark.validate` trains every draw twice: with its fault, which has to
diverge, and with the one thing that is wrong set right, which has to train through.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from experiments.benchmark.draws import Draw, all_draws, selected
from experiments.benchmark.seeding import write


@dataclass(frozen=True, kw_only=True)
class Check:
    """One draw, trained with its fault and without."""

    name: str
    entry: str
    cause: str
    family: str
    onset: int | None
    """None when the run did not diverge."""
    detected: int | None
    strikes: int | None
    healed: bool
    """Whether the fixed program trains through."""
    detector: str = ""
    orders_survived: int | None = None
    """Of four other orders of the data; asked of marginal draws that diverged."""
    each_alone: bool | None = None
    """Whether each of two faults crashes the run without the other; asked of joint draws."""


def check(name: str) -> Check:
    """Train the draw called `name` twice."""
    import torch

    from experiments.benchmark.quick import other_orders, train_once

    torch.set_num_threads(1)
    draw = next(draw for draw in all_draws() if draw.name == name)
    with tempfile.TemporaryDirectory() as folder:
        found = train_once(write(draw, Path(folder) / "a")).divergence
        healed = train_once(write(draw, Path(folder) / "b", fixed=True)).divergence is None
        orders = None
        if draw.cause == "marginal" and found is not None:
            orders = other_orders(Path(folder) / "a" / "experiment.yaml")
        alone = None
        if draw.cause == "joint":
            parts = (write(draw, Path(folder) / f"part{i}", without=i) for i in (0, 1))
            alone = all(train_once(file).divergence is not None for file in parts)
    return Check(
        name=name,
        entry=draw.entry.name,
        cause=draw.cause,
        family=draw.family,
        onset=found.onset if found else None,
        detected=found.detected if found else None,
        strikes=draw.fault().strikes(),
        healed=healed,
        detector=found.detector if found else "",
        orders_survived=orders,
        each_alone=alone,
    )


def checks(draws: Sequence[Draw], *, jobs: int) -> Iterator[Check]:
    """Yield a check per draw, `jobs` at a time."""
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(check, [draw.name for draw in draws])


def table(found: Sequence[Check]) -> str:
    """Return a row per fault as Markdown."""
    lines = [
        "| fault | cause | draws | diverged | onset within ±2 of the strike | heals when fixed |",
        "|---|---|---|---|---|---|",
    ]
    for entry in dict.fromkeys(one.entry for one in found):
        rows = [one for one in found if one.entry == entry]
        diverged = [one for one in rows if one.onset is not None]
        known = [one for one in diverged if one.strikes is not None]
        near = sum(abs((one.onset or 0) - (one.strikes or 0)) <= 2 for one in known)
        lines.append(
            f"| {entry} | {rows[0].cause} | {len(rows)} | {len(diverged)} "
            f"| {f'{near} of {len(known)}' if known else '–'} | {sum(r.healed for r in rows)} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmark.validate")
    parser.add_argument("--only", default="", help="faults or causes, comma-separated")
    parser.add_argument("--families", default="", help="program families, comma-separated")
    parser.add_argument("--each", type=int, help="draws of each fault at most, evenly spread")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", type=Path, help="also write the table to this file")
    arguments = parser.parse_args()
    draws = selected(
        all_draws(),
        only=frozenset(filter(None, arguments.only.split(","))),
        families=frozenset(filter(None, arguments.families.split(","))),
    )
    if arguments.each is not None:
        names = dict.fromkeys(draw.entry.name for draw in draws)
        draws = [
            draw
            for name in names
            for draw in selected(draws, only=frozenset({name}), limit=arguments.each)
        ]
    found = []
    for one in checks(draws, jobs=arguments.jobs):
        found.append(one)
        fate = "trained through" if one.onset is None else f"diverged at {one.onset}→{one.detected}"
        fix = "" if one.healed else ", THE FIX DOES NOT HEAL"
        if one.orders_survived is not None:
            fix += f", {one.orders_survived} of 4 other orders train through"
        if one.each_alone is not None:
            fix += ", each alone crashes" if one.each_alone else ", NOT EACH ALONE CRASHES"
        print(f"{one.name}: {fate} ({one.detector}), strikes {one.strikes}{fix}", flush=True)
    print(f"\n{table(found)}")
    if arguments.write:
        arguments.write.write_text(f"{table(found)}\n", "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
