"""What is alarming in a figure that a monitor measures, with the figures."""

from __future__ import annotations

from experiments.reference.markdown import joined, quoted, table, with_rows
from stabexp.monitors.limits import FEW, LIMITS, WINDOW, Limit

_LEAD = """What is worth an alarm in the figures that monitors measure. An alarm never ends a
run; it stands in its `events.jsonl`, in `stabexp log` and in `stabexp diagnose`."""


def page() -> str:
    """Return the page."""
    own = (
        f"Where a run has a healthy window of its own ({WINDOW} finite measurements of a figure; "
        f"{FEW} where it ends before), that decides: alarming is what lies above its median times "
        "a factor, or above its largest value plus an amount. Until then, and where nothing "
        "stands in that column, the figure of the table counts."
    )
    rows = [
        (
            quoted(limit.name),
            f"`{limit.figure}`",
            quoted(limit.words),
            _fixed(limit),
            _own(limit),
            str(limit.patience),
            f"{limit.rows}" if limit.rows else "",
        )
        for limit in LIMITS
    ]
    head = (
        "alarm",
        "figure",
        "which is",
        "alarming",
        "with a healthy window",
        "in a row",
        "source row",
    )
    note = with_rows("Source rows are those of [the 49 systems](../systems.md).")
    return joined("# Alarms", _LEAD, own, table(head, rows), note)


def _fixed(limit: Limit) -> str:
    parts = []
    if limit.above is not None:
        parts.append(f"above {limit.above:g}")
    if limit.below is not None:
        parts.append(f"below {limit.below:g}, but not 0")
    return " or ".join(parts)


def _own(limit: Limit) -> str:
    if limit.times is not None:
        return f"above {limit.times:g} × its median"
    return f"above its largest + {limit.plus:g}" if limit.plus is not None else ""
