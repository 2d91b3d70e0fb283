"""The measured part of docs/recovery.md: how often a recovery brought a run back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.recovery.bench import CLOSE, REMEDIES, Row

HEADING = "## Does a run come back?"
"""What comes before it on the page is written by hand."""

BENCH = """
A small regression with targets that hold noise, {faults} kinds of fault put into it, {seeds} seeds
each (`python -m experiments.recovery --write docs/recovery.md`; the rules were made on seeds 0 and
1 and mended on those up to 16, the score is of seeds {first} to {last}). *Back* means that the mean
loss of the last 60 steps lies at most 2 % above that of the same training without the fault; how
many lie within 2 % on either side is told beside it. *Right* means that the remedy which counted in
the end is the one that the fault calls for.
"""


def told(result: dict[str, Any]) -> str:
    """Return a result in one line."""
    head = f"{result['what']:8s} {result['fault']:22s} {result['seed']:3d}"
    if "error" in result:
        return f"{head} ERROR {result['error'].splitlines()[-1][:160]}"
    if "harmless" in result:
        return f"{head} did no harm"
    if "acted" in result:
        return f"{head} {'ACTED' if result['acted'] else 'left alone'}"
    row = Row(**{**result["row"], "remedies": tuple(result["row"]["remedies"])})
    return (
        f"{head} {'back' if row.came_back else 'NOT BACK'} {row.excess:+.2%} "
        f"{'right' if row.right else 'WRONG'} {', '.join(row.remedies)} ({row.seconds:.0f} s)"
    )


def page(
    rows: Sequence[tuple[str, Row]],
    acted: Sequence[bool],
    *,
    errors: int,
    harmless: Sequence[str] = (),
) -> str:
    """Return that part of the page."""
    parts = [HEADING]
    for what, title in (
        ("rules", "By rules (`--without-verdict`)"),
        ("verdict", "With a bisect first (the default)"),
    ):
        some = [row for kind, row in rows if kind == what]
        if not some:
            continue
        if what == "rules":
            seeds = sorted({row.seed for row in some})
            faults = len({row.fault for row in some})
            parts.append(
                BENCH.format(
                    faults=faults, seeds=len(some) // faults, first=seeds[0], last=seeds[-1]
                )
            )
        parts.append(_table(title, some))
    if acted:
        parts.append(
            f"Clean runs with `on_divergence: recover`: {len(acted)}, "
            f"of which {sum(acted)} were acted upon.\n"
        )
    if harmless:
        parts.append(
            f"Did no harm, so that the next seed stands in: {', '.join(harmless)}.\n".replace(
                "_", " "
            )
        )
    if errors:
        parts.append(f"Runs that ended in an error and are counted nowhere: {errors}.\n")
    return "\n".join(parts)


def _table(title: str, rows: Sequence[Row]) -> str:
    back, right = sum(r.came_back for r in rows), sum(r.right for r in rows)
    rollbacks = sum(r.rollbacks for r in rows)
    near = sum(r.came_back and r.excess >= -CLOSE for r in rows)
    lines = [
        f"### {title}",
        "",
        f"**{back} of {len(rows)} came back ({near} within 2 % on either side), {rollbacks} "
        f"rollbacks in all, the right remedy in {right} of {len(rows)}.**",
        "",
        "| fault | back | farthest | right remedy | rollbacks | steps replayed | s |",
        "| --- | ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    for fault in REMEDIES:
        some = [row for row in rows if row.fault == fault]
        if not some:
            continue
        farthest = max((row.excess for row in some), key=abs)
        wrong = sorted(
            {row.remedies[-1] if row.remedies else "none" for row in some if not row.right}
        )
        named = f"{REMEDIES[fault][0]}: {sum(r.right for r in some)} of {len(some)}"
        lines.append(
            f"| {fault.replace('_', ' ')} | {sum(r.came_back for r in some)} of {len(some)} | "
            f"{farthest:+.2%} | {named}{', else ' + ', '.join(wrong) if wrong else ''} | "
            f"{sum(r.rollbacks for r in some)} | {sum(r.replayed for r in some)} | "
            f"{sum(r.seconds for r in some) / len(some):.0f} |"
        )
    return "\n".join([*lines, ""])
