"""What the locator found, as text for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stabexp.diagnosis.findings_text import wrapped
from stabexp.findings.origin import Located

LAYERS = 5
"""Layers that are named."""


def origin_text(found: Located) -> str:
    """Return the lines to print, without the last line's end."""
    record = found.record
    same = "bit for bit as the run" if record.mismatch is None else (
        f"NOT as the run: {record.mismatch_field} differs from step {record.mismatch} on"
    )  # fmt: skip
    how = "replayed before" if found.reused else f"replayed in {record.seconds:.1f} s"
    head = f"{found.run_id}: steps {record.spec.from_step} to {record.last_step} {how}, {same}"
    lines = wrapped("", head)
    if found.finding is None:
        lines += [
            "",
            *wrapped(
                "",
                "no operation made a NaN or Inf that did harm: the run was lost with finite "
                "numbers, so it is not a matter of one line",
            ),
        ]
    else:
        lines += ["", *_finding(found.finding)]
        lines += ["", "likely reasons"]
        for number, reason in enumerate(found.reasons, 1):
            lines += wrapped(f"  {number}. ", reason)
        lines += wrapped("  remedy: ", str(found.finding["remedy"]))
    named = found.layers[:LAYERS]
    more = f" and {len(found.layers) - LAYERS} more" if len(found.layers) > LAYERS else ""
    lines += [
        "",
        *wrapped("layers: ", found.layers_told + (f" ({', '.join(named)}{more})" if named else "")),
    ]
    lines += ["", *wrapped("next: ", "which change cures it for its own sake?")]
    return "\n".join([*lines, f"  {found.next_command}"])


def _finding(finding: Mapping[str, Any]) -> list[str]:
    kind = {"nan": "NaN", "inf": "Inf"}[finding["kind"]]
    lines = wrapped(
        "",
        f"step {finding['step']}, {finding['phase']}: {finding['operation']} made the first {kind}",
    )
    samples = finding.get("sample_ids")
    for name, value in (
        ("module", finding["module"]),
        ("parameter", finding["parameter"]),
        ("line", finding["source"]),
        ("code", finding["code"]),
        ("inputs", finding["inputs"]),
        ("samples", ", ".join(map(str, samples)) if samples else ""),
        ("reached", f"{finding['reached']} {finding['reached_name']}".strip()),
    ):
        if value:
            lines += wrapped(f"  {name:<10}", str(value))
    for step in finding["chain"][1:]:
        lines += wrapped("    then    ", str(step))
    return lines
