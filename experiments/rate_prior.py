"""How often is the learning-rate policy the cause, and how often does a lower rate only cure?

Practitioners say that about 70 % of stability problems come from it. Counted in the recorded
verdicts on seeded faults, whose causes are known, and in the labels of the benchmark.

    python -m experiments.rate_prior
"""

from __future__ import annotations

import json
from pathlib import Path

POLICY = frozenset({"learning_rate", "warmup", "schedule"})
"""Causes that are the learning-rate policy."""
NO_FAULT = frozenset({"healthy", "inconclusive", "marginal", "not_reproduced"})
"""Labels with nothing to blame."""
HERE = Path(__file__).parent


def verdict_rows() -> list[tuple[str, frozenset[str]]]:
    """Return (known cause, variables that cure robustly) of every run that diverged."""
    found = []
    for line in (HERE.parent / "docs" / "verdicts.md").read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 9 and cells[1].isdigit() and cells[2] != "healthy":
            found.append((cells[2], frozenset(cells[5].split(", ")) - {"–"}))
    return found


def labels() -> list[str]:
    """Return the known causes of the benchmark's runs that have one."""
    read = json.loads((HERE / "benchmark" / "labels.json").read_text("utf-8"))
    return [label["cause"] for label in read.values() if label["cause"] not in NO_FAULT]


def sentence() -> str:
    """Return what was counted."""
    rows = verdict_rows()
    cured = [cause for cause, cures in rows if "learning_rate" in cures]
    policy = sum(cause in POLICY for cause, _ in rows)
    benchmark = labels()
    share = sum(cause in POLICY for cause in benchmark)
    return (
        f"Of {len(rows)} seeded runs that diverged (docs/verdicts.md) a lower rate robustly cures "
        f"{len(cured)} ({len(cured) / len(rows):.0%}), but the rate policy is the cause of "
        f"{policy} ({policy / len(rows):.0%}); of the benchmark's {len(benchmark)} faults it is "
        f"that of {share} ({share / len(benchmark):.0%})."
    )


if __name__ == "__main__":
    print(sentence())
