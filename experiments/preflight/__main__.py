"""Score what is found before training: python -m experiments.preflight [WORD …] [--page].

Every set-up is tried as `stabexp check` tries it. One counts as right when exactly its own finding
is told, or none where it is clean. Words choose set-ups. Results are kept beside this file, and
docs/preflight.md is written from them; `--page` only writes the page.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from experiments.preflight.score import keep, kept, score
from experiments.preflight.setups import CLEAN, FURTHER_CLEAN, FURTHER_PLANTED, PLANTED, Setup
from experiments.preflight.table import page

LISTS: tuple[tuple[str, tuple[Setup, ...]], ...] = (
    ("Planted, the rules were made on these", PLANTED),
    ("Clean, the rules were made on these", CLEAN),
    ("Planted, written afterwards and scored once", FURTHER_PLANTED),
    ("Clean, written afterwards and scored once", FURTHER_CLEAN),
)


def main(arguments: Sequence[str]) -> None:
    """Score, print, keep, and write the page."""
    torch.set_num_threads(1)
    words = [word for word in arguments if not word.startswith("--")]
    for title, setups in () if "--page" in arguments else LISTS:
        for setup in setups:
            if words and not any(word in f"{title} {setup.title}" for word in words):
                continue
            found = score(setup)
            keep(found)
            told = ", ".join(found.found) or "nothing"
            mark = "right" if found.right else "WRONG"
            print(f"{mark}  {setup.title}: {told} ({found.seconds:.1f} s)", flush=True)
    known = kept()
    scored = {
        title: [known[setup.title] for setup in setups if setup.title in known]
        for title, setups in LISTS
    }
    for title, rows in scored.items():
        print(f"{title}: {sum(row.right for row in rows)} of {len(rows)}")
    Path("docs/preflight.md").write_text(page(scored), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
