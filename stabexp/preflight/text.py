"""An examination before training as text: each finding with place, figures, reason and remedy."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from stabexp.preflight.result import Finding, ModuleRange, Preflight

WIDTH = 80


def preflight_text(result: Preflight, *, ranges: bool = False) -> str:
    """Return what was found, or that nothing was.

    Args:
        result: What a dry run showed.
        ranges: Whether to add how far each module is from the ends of half precision.
    """
    made = f"{result.updates} updates in {result.seconds:.1f} s"
    count = len(result.findings)
    found = {0: "nothing found", 1: "1 finding"}.get(count, f"{count} findings")
    blocks = [f"{result.name}: {found} ({made})"]
    blocks += [_finding(number, each) for number, each in enumerate(result.findings, start=1)]
    if result.unexamined:
        blocks.append("not looked at: " + "; ".join(result.unexamined))
    if ranges or any(module.dtype == "float16" for module in result.modules):
        blocks.append(_ranges(result.modules))
    return "\n\n".join(blocks)


def _finding(number: int, finding: Finding) -> str:
    sure = "" if finding.certain else " (probably)"
    lines = [f"{number}  {finding.name.replace('_', ' ')}{sure}"]
    samples = f", samples {', '.join(map(str, finding.samples))}" if finding.samples else ""
    rows = [
        ("where", f"{finding.where}, step {finding.step}{samples}"),
        ("seen", finding.what),
        ("why", finding.why),
        ("change", finding.change),
    ]
    if finding.leads_to:
        rows.append(("leads to", ", ".join(name.replace("_", " ") for name in finding.leads_to)))
    for word, text in rows:
        lines.append(
            textwrap.fill(text, WIDTH, initial_indent=f"   {word:<9}", subsequent_indent=" " * 12)
        )
    return "\n".join(lines)


def _ranges(modules: Sequence[ModuleRange]) -> str:
    lines = [
        "float16 by module: largest activation (it ends at 65,504), how often it may",
        "still grow, and the share of its gradient elements that float16 cannot hold",
        "without loss scaling",
        f"  {'module':<34} {'format':<9} {'largest':>9} {'headroom':>10} {'vanishing':>10}",
    ]
    for each in modules:
        vanishing = "" if each.vanishing is None else f"{each.vanishing:.1%}"
        lines.append(
            f"  {each.module or '(the model)':<34} {each.dtype:<9} {each.largest:>9.4g} "
            f"{each.headroom:>9.3g}× {vanishing:>10}"
        )
    return "\n".join(lines)
