"""A state's health as text for the terminal: what is wrong first, then the layers."""

from __future__ import annotations

import math

from stabexp.diagnosis.findings_text import wrapped
from stabexp.findings.health import Health
from stabexp.records.tensors import TensorFigures

ROWS = 24
"""Parameters shown; of more, those that changed most, or are largest."""
NAMED = 12
"""Ailments of one kind that are named."""

TITLES = {
    "non_finite": "not finite",
    "extreme": "weights beyond reason",
    "lone_value": "single weights that stand out",
    "stands_out": "layers that stand out",
    "lost_layer": "layers that are lost",
    "second_moment": "optimizer state that cannot be",
    "variance": "normalisations without variance",
    "gradient_norm": "gradients",
}


def health_text(found: Health) -> str:
    """Return the lines to print, without the last line's end."""
    where = f"{found.source}" + (
        "" if found.step is None else f", the state before step {found.step}"
    )
    counts = {part: sum(t.part == part for t in found.tensors) for part in _PARTS}
    there = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    word = "healthy" if found.healthy else f"{len(found.ailments)} finding(s)"
    lines = [f"{where}: {word} ({there})"]
    for kind, title in TITLES.items():
        ailing = [ailment for ailment in found.ailments if ailment.kind == kind]
        if ailing:
            lines += ["", title]
            for ailment in ailing[:NAMED]:
                lines += wrapped("  ", f"{ailment.name}: {ailment.message}")
            if len(ailing) > NAMED:
                lines.append(f"  and {len(ailing) - NAMED} more")
    return "\n".join([*lines, "", *_table(found)])


_PARTS = ("parameter", "buffer", "gradient", "optimizer", "other")


def _table(found: Health) -> list[str]:
    every = [tensor for tensor in found.tensors if tensor.part == "parameter"]
    parameters = finite = [tensor for tensor in every if math.isfinite(tensor.mean)]
    if len(parameters) > ROWS:
        kept = {t.name for t in sorted(parameters, key=lambda t: -_striking(t, found))[:ROWS]}
        parameters = [tensor for tensor in parameters if tensor.name in kept]
    if not parameters:
        return []
    rows = [("parameter", "shape", "mean", "variance", "largest", "since first")]
    for tensor in parameters:
        ratio = found.grown.get(tensor.name, math.nan)
        rows.append(
            (
                tensor.name,
                "×".join(map(str, tensor.shape)) or "1",
                f"{tensor.mean:.3g}",
                f"{tensor.variance:.3g}",
                f"{tensor.largest:.3g}",
                f"×{ratio:.3g}" if math.isfinite(ratio) else "",
            )
        )
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    for left_out, why in (
        (len(finite) - len(parameters), "less striking"),
        (len(every) - len(finite), "without a single finite value"),
    ):
        if left_out:
            lines.append(f"and {left_out} more, {why}")
    return lines


def _striking(tensor: TensorFigures, found: Health) -> float:
    if tensor.nans or tensor.infs:
        return float("inf")
    ratio = found.grown.get(tensor.name, 1.0)
    return max(ratio, 1 / ratio if ratio else float("inf"))
