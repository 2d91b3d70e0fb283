"""The benchmark's page: every figure with its interval, and the command that makes it again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from experiments.benchmark import score
from experiments.benchmark.results import Result
from experiments.benchmark.score import Share

COMMAND = "python -m experiments.benchmark --grid --write docs/benchmark.md"

ALL = 10**9
"""Upper edge of a class without one."""


def write_page(results: Sequence[Result], file: Path | None = None) -> str:
    """Return the page as Markdown, and write it to `file` when there is one."""
    text = "\n\n".join(
        [
            "# Benchmark: seeded faults",
            f"Made by `{COMMAND}` from {len(results)} seeded runs. Rules and faults have the same "
            "authors, and the programs are small: a lead, not a proof. The held-out families were "
            "never looked at while the rules were made.",
            _headline(results),
            "## Beside simpler ways\n\n" + _baselines(results),
            "## By cause\n\n" + _by(results, "cause"),
            "## By program family\n\n" + _by(results, "family"),
            "## What was said for what\n\nRows: the known cause. Columns: the verdict.\n\n"
            + confusion_table(results),
            "## What a verdict costs\n\n" + _costs(results),
            "## Confidence\n\n" + _reliability(results),
            "## Wrong verdicts\n\n" + _wrong(results),
        ]
    )
    if file is not None:
        file.write_text(text + "\n", "utf-8")
    return text


def shown(value: Share) -> str:
    """Return "92 % (85–96), 110 of 120"."""
    if not value.count:
        return "–"
    low, high = value.interval
    hits = f"{value.hits:.0f}" if value.hits == int(value.hits) else f"{value.hits:.1f}"
    return f"{value.value:.0%} ({low:.0%}–{high:.0%}), {hits} of {value.count}"


def _headline(results: Sequence[Result]) -> str:
    faults, spares = score.faults(results), score.spares(results)
    seen = [result for result in faults if not result.held_out]
    unseen = [result for result in faults if result.held_out]
    joint = [result for result in spares if result.cause == "joint"]
    quiet = [r for r in results if not r.spare and not r.diverged]
    lost = [r for r in results if r.spare and r not in spares]
    rows = [
        ("right cause", score.share(faults, lambda r: r.right)),
        ("… in the families that rules were tuned on", score.share(seen, lambda r: r.right)),
        ("… in held-out families", score.share(unseen, lambda r: r.right)),
        ("right family of causes", score.share(faults, lambda r: r.family_right)),
        (
            "blamed something where nothing may be blamed",
            score.share(spares, lambda r: r.wrongly_blamed),
        ),
        ("joint causes called joint", score.share(joint, lambda r: r.right)),
        ("onset within ±2 steps of the strike", score.onset_error(faults)),
        ("bad data: a broken sample named", score.samples_found(results)),
    ]
    lines = ["| | share (95 % interval) |", "|---|---|"]
    lines += [f"| {name} | {shown(value)} |" for name, value in rows]
    if quiet or lost:
        lines += [
            "",
            f"{len(quiet)} draws with a fault and {len(lost)} of the others did not diverge, or "
            "were not what their label says. They are left out of every share.",
        ]
    return "\n".join(lines)


def _baselines(results: Sequence[Result]) -> str:
    known = score.faults(results)
    gridded = [result for result in known if result.grid is not None]
    lines = ["| way to name the cause | right |", "|---|---|"]
    lines.append(f"| stabexp | {shown(score.share(known, lambda r: r.right))} |")
    for name, right in score.BASELINES.items():
        rows = gridded if "cure" in name and gridded else known
        lines.append(f"| {name} | {shown(score.share(rows, right))} |")
    saving = score.grid_saving(results)
    if not math.isnan(saving):
        lines += [
            "",
            f"The first cures come from the full one-at-a-time grid ({len(gridded)} runs), which "
            f"replays {saving:.1f} times as many steps (median) as the bisect.",
        ]
    return "\n".join(lines)


def _by(results: Sequence[Result], what: str) -> str:
    lines = [f"| {what} | right | right family |", "|---|---|---|"]
    rows = [*score.faults(results), *score.spares(results)]
    for name in dict.fromkeys(getattr(result, what) for result in rows):
        own = [result for result in rows if getattr(result, what) == name]
        right = score.share(own, lambda r: r.right)
        family = score.share(own, lambda r: r.family_right)
        lines.append(f"| {name} | {shown(right)} | {shown(family)} |")
    return "\n".join(lines)


def confusion_table(results: Sequence[Result]) -> str:
    """Return the matrix of known causes and verdicts as Markdown."""
    rows = [*score.faults(results), *score.spares(results)]
    pairs = score.confusion(rows)
    known = list(dict.fromkeys(result.cause for result in rows))
    found = [*known, *sorted({said for _, said in pairs} - set(known))]
    lines = ["| known | " + " | ".join(found) + " |", "|---" * (len(found) + 1) + "|"]
    for cause in known:
        cells = [str(pairs.get((cause, said), "")) for said in found]
        lines.append(f"| {cause} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _costs(results: Sequence[Result]) -> str:
    lines = [
        "| steps to the divergence | runs | replays (median) | replayed steps (median) "
        "| ÷ steps to the divergence (median) |",
        "|---|---|---|---|---|",
    ]
    for cost in score.costs(results):
        length = f"{cost.low}–{cost.high - 1}" if cost.high < ALL else f"{cost.low} or more"
        name = "all" if (cost.low, cost.high) == (0, ALL) else length
        lines.append(
            f"| {name} | {cost.count} | {cost.replays:g} | {cost.steps:g} | {cost.ratio:.2f} |"
        )
    return "\n".join(lines)


def _reliability(results: Sequence[Result]) -> str:
    bins = score.reliability(results)
    lines = ["| confidence | verdicts | mean confidence | right |", "|---|---|---|---|"]
    lines += [
        f"| {one.low:g}–{one.high:g} | {one.count} | {one.confidence:.2f} | {shown(one.right)} |"
        for one in bins
    ]
    error = score.calibration_error(bins)
    return "\n".join([*lines, "", f"Expected calibration error: {error:.3f}."])


def _wrong(results: Sequence[Result]) -> str:
    wrong = [
        result for result in [*score.faults(results), *score.spares(results)] if not result.right
    ]
    if not wrong:
        return "None."
    lines = ["| draw | known | verdict | confidence |", "|---|---|---|---|"]
    lines += [
        f"| {r.name} | {r.cause} | {r.found} | {r.confidence:.2f} |"
        for r in wrong
        if not r.held_out
    ]
    hidden = sum(result.held_out for result in wrong)
    if hidden:
        lines += ["", f"{hidden} more in the held-out families, which nobody looks at."]
    return "\n".join(lines)
