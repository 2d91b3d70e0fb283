"""Injects fourteen kinds of fault, recovers from each, and counts; goes on where it was killed.

    python -m experiments.recovery [--seeds 5] [--first 20] [--faults bad_batch …] [--clean 100]
        [--verdict] [--jobs 2] [--keep rows.jsonl] [--write docs/recovery.md]

Seeds 0 and 1 are those that the rules were made on, up to 16 those that they were mended on; the
score is of the seeds after them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from experiments.recovery.bench import CLEAN, REMEDIES, Row, work
from experiments.recovery.page import HEADING, page, told

KINDS = ("", *CLEAN)
"""Clean trainings: the plain one, and that of each fault which has its own."""


def jobs(arguments: argparse.Namespace, done: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what is left to do; in place of a fault that did no harm its next seed is taken."""
    known = {(r["what"], r["fault"], r["seed"]): r for r in done}
    wanted: list[dict[str, Any]] = []
    for fault, what in itertools.product(
        arguments.faults or REMEDIES, ("rules", "verdict") if arguments.verdict else ("rules",)
    ):
        seeds = itertools.count(arguments.first)
        harmful = (s for s in seeds if not known.get((what, fault, s), {}).get("harmless"))
        chosen = itertools.islice(harmful, arguments.seeds)
        wanted += [{"what": what, "fault": fault, "seed": seed} for seed in chosen]
    for number in range(arguments.clean):
        kind = KINDS[number % len(KINDS)]
        wanted.append({"what": "clean", "fault": kind, "seed": 100 + number})
    return [job for job in wanted if (job["what"], job["fault"], job["seed"]) not in known]


def main() -> int:
    """Run what is not done yet, print each result, and write the page where asked."""
    parser = argparse.ArgumentParser(prog="experiments.recovery", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=20)
    parser.add_argument("--faults", nargs="*", choices=list(REMEDIES))
    parser.add_argument("--clean", type=int, default=100)
    parser.add_argument("--verdict", action="store_true", help="also with a bisect first")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="results so far; those in it are not made again")
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    done: list[dict[str, Any]] = []
    if arguments.keep and arguments.keep.exists():
        done = [json.loads(line) for line in arguments.keep.read_text().splitlines()]
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool:
        while left := jobs(arguments, done):
            for future in as_completed([pool.submit(work, job) for job in left]):
                result = future.result()
                done.append(result)
                print(told(result), flush=True)
                if arguments.keep:
                    with arguments.keep.open("a") as file:
                        file.write(json.dumps(result) + "\n")
    rows = [(r["what"], Row(**_tuples(r["row"]))) for r in done if "row" in r]
    acted = [bool(r["acted"]) for r in done if "acted" in r]
    errors = [r for r in done if "error" in r]
    harmless = [f"{r['fault']} on seed {r['seed']}" for r in done if "harmless" in r]
    text = page(rows, acted, errors=len(errors), harmless=harmless)
    print(text)
    if arguments.write:
        before = arguments.write.read_text("utf-8").partition(f"{HEADING}\n")[0]
        arguments.write.write_text(before + text, "utf-8")
    return 1 if errors else 0


def _tuples(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "remedies": tuple(row["remedies"])}


if __name__ == "__main__":
    sys.exit(main())
