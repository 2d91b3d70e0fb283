"""Findings as terminal text: symptom, figures, likely causes in order, and what to type next."""

from __future__ import annotations

import textwrap

from stabexp.diagnosis.result import Diagnosis
from stabexp.findings import TAXONOMY, Finding

WIDTH = 80
TOLD = 8
"""Alarms that are shown."""
NAMED = 4
"""Likely causes, and layers, that are told of one finding."""


def findings_lines(found: Diagnosis) -> list[str]:
    """Return the lines on findings and questions; none where nothing was found."""
    lines: list[str] = []
    if found.findings:
        lines += ["", "findings"]
        for number, finding in enumerate(found.findings):
            lines += _finding(finding, whole=number == 0)
    if found.questions:
        lines += ["", "the careful questions"]
        for item in found.questions:
            lines += wrapped("  ", f"{item.question} {item.answer}: {item.why}")
            nodes = ", ".join(item.nodes)
            lines += wrapped("    → ", f"{item.advice} (a bisect asks this at: {nodes})")
    if found.told:
        lines += ["", "told while it trained"]
        for text in found.told[:TOLD]:
            lines += wrapped("  - ", text)
        if len(found.told) > TOLD:
            lines.append(f"  and {len(found.told) - TOLD} more, in events.jsonl")
    return lines


def _finding(finding: Finding, *, whole: bool) -> list[str]:
    """Return a finding's lines; of all but the gravest without what speaks for each cause."""
    first, last = finding.first_step, finding.last_step
    steps = f"step {first}" if first == last else f"steps {first} to {last}"
    lines = wrapped("  * ", f"{TAXONOMY[finding.symptom].title} ({steps}): {finding.message}")
    for text in finding.evidence:
        lines += wrapped("    - ", text)
    if finding.layers and not any(text.startswith("layers: ") for text in finding.evidence):
        more = len(finding.layers) - NAMED
        named = ", ".join(finding.layers[:NAMED]) + (f" and {more} more" if more > 0 else "")
        lines += wrapped("    - ", f"in {named}")
    if not whole:
        causes = "; ".join(likely.text for likely in finding.likely[:NAMED])
        lines += wrapped("    likely: ", causes)
    for number, likely in enumerate(finding.likely[:NAMED] if whole else (), 1):
        said = {"for": "speaks for it", "against": "speaks against it", "": ""}[likely.weight]
        why = f" ({likely.why}: {said})" if said else ""
        lines += wrapped(f"    {number}. ", likely.text + why)
    for check in finding.checks[:1]:
        lines += wrapped("    next: ", check.what)
        lines.append(f"      {check.command}")
    return lines


def wrapped(front: str, text: str) -> list[str]:
    """Return a text behind `front`, its further lines below its first."""
    if not text:
        return [front]
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=front,
        subsequent_indent=" " * min(len(front), 12),
        break_long_words=False,
    )
