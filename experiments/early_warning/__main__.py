"""`python -m experiments.early_warning --write docs/early_warning.md`."""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from experiments.early_warning.page import page
from experiments.early_warning.programs import FAMILIES, draws
from experiments.early_warning.recording import record_all
from experiments.early_warning.score import judged


def main() -> None:
    """Record what is missing, judge everything, and write or print the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="where to write the page; else it is printed")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    record_all(FAMILIES, workers=given.workers)
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
        halves = {half: list(pool.map(judged, draws(half))) for half in FAMILIES}
    text = page(halves, FAMILIES)
    if given.write:
        given.write.write_text(text, "utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
