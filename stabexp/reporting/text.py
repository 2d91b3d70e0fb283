"""A verdict as plain text for the terminal: the tree as walked, the trials, the fix, what to type.

No colour codes, so it can be piped, logged and compared; `verdict_renderable` adds colour on top.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from stabexp.records import Evidence, TrialRecord, Verdict
from stabexp.reporting import words
from stabexp.reporting.columns import columns, cut, pad, wrap
from stabexp.reporting.patch import patch_yaml

if TYPE_CHECKING:
    from rich.text import Text

_HEADINGS = (
    "How it was decided",
    "What is at fault",
    "Still possible, most plausible first",
    "Ruled out",
    "Trials",
    "Fix",
    "Next",
)
FEWEST_COLUMNS = 24
"""Columns that the change of a trial gets before other columns of the table are left out."""
_STYLES = {
    "cured": "green",
    "stalled": "yellow",
    "delayed": "dark_orange",
    "diverged": "red",
    "inconclusive": "magenta",
}


def verdict_text(
    verdict: Verdict, trials: Sequence[TrialRecord], *, width: int = 80, experiment: str = ""
) -> str:
    """Return the whole verdict, wrapped to `width` columns (wide characters count two).

    Commands and the fix keep their lines, so that they can be copied.
    """
    width = max(40, width)
    records = words.ordered(trials)
    labels = {record.spec.key: words.label(record) for record in records}
    lines = [
        *wrap(words.one_line(verdict.summary), width),
        *wrap(f"Confidence {words.confidence(verdict.confidence)}.", width),
        "",
        *wrap(
            f"Run {words.one_line(verdict.run_id)}. {words.incident(verdict)} Cost: "
            f"{words.cost(verdict)}.",
            width,
        ),
        "",
        "How it was decided",
        *_tree(verdict, labels, width),
    ]
    if at_fault := words.culprit(verdict):
        lines += ["", "What is at fault"]
        for heading, text in at_fault:
            lines += wrap(f"{heading}: {text}", width, first="  ", then="    ")
    if text := words.no_return(verdict):
        lines += ["", *wrap(text, width)]
    if verdict.hypotheses:
        lines += ["", "Still possible, most plausible first"]
        for cause, why in words.possible(verdict):
            lines += wrap(f"{cause}: {why}", width, first="  - ", then="    ")
    if verdict.telemetry:
        lines += wrap(
            f"Second opinion, from the step records alone: {words.one_line(verdict.telemetry)}",
            width,
        )
    if verdict.ruled_out:
        lines += ["", "Ruled out"]
        for item in verdict.ruled_out:
            also = "cures the symptom, is not the cause: " if item.masker else ""
            text = f"{words.one_line(item.variable)}: {also}{words.one_line(item.why)}"
            lines += wrap(text, width, first="  - ", then="    ")
    if records:
        lines += ["", "Trials", *_table(records, width)]
    lines += ["", "Fix"]
    if verdict.fix:
        patch = patch_yaml(verdict.fix, experiment)
        lines += [f"    {line}" for line in patch.splitlines()]
    lines += wrap(words.proof(verdict), width, first="  ", then="  ")
    if verdict.next_command:
        lines += ["", "Next", f"    {words.one_line(verdict.next_command)}"]
    return "\n".join(lines) + "\n"


def trial_line(record: TrialRecord) -> str:
    """Return one line on one trial: number, change, outcome, and what that rests on."""
    what = pad(_what(record), 30)
    return f"{words.label(record)}  {what}  {words.outcome(record):<12}  {words.finding(record)}"


def trial_lines(
    record: TrialRecord, width: int, *, indent: str = "", remark: str = ""
) -> list[str]:
    """Return the gist of it for a list, mostly one line of at most `width` columns."""
    what = cut(_what(record), 29)
    head = f"{indent}{words.label(record)}  {pad(what, 29)}  {words.outcome(record):<9}  "
    return wrap(words.gist(record) + remark, width, first=head, then=" " * len(f"{indent}00  "))


def _what(record: TrialRecord) -> str:
    if record.spec.role == "scan":
        return "scan: each sample alone"
    role = "" if record.spec.role == "dose" else f"{record.spec.role}: "
    return f"{role}{words.change(record)}"


def verdict_renderable(
    verdict: Verdict, trials: Sequence[TrialRecord], *, width: int = 80, experiment: str = ""
) -> Text:
    """Return the same text as a rich `Text` with outcomes coloured and headings bold."""
    from rich.text import Text

    plain = verdict_text(verdict, trials, width=width, experiment=experiment)
    text = Text(plain, no_wrap=True, overflow="ignore")
    for outcome, style in _STYLES.items():
        # Only in the table and after "Outcome": prose that happens to say "diverged" stays plain.
        text.highlight_regex(rf"(?m)(?<=  ){outcome}$", style=style)
    text.highlight_regex(rf"(?m)^({'|'.join(_HEADINGS)})$", style="bold")
    text.highlight_regex(r"(?m)^  └─ .*$", style="bold")
    text.highlight_regex(r"(?m)^ *│? *→ .*?\.(?= |$)", style="bold")
    end = plain.find("\nConfidence ")
    text.stylize("bold", 0, max(0, end))
    return text


def _tree(verdict: Verdict, labels: Mapping[str, str], width: int) -> list[str]:
    lines: list[str] = []
    for number, node in enumerate(verdict.path, 1):
        lines += wrap(words.one_line(node.question), width, first=f"{number:>3} ", then="  │ ")
        lines += wrap(_answer(node, labels), width, first="  │   → ", then="  │     ")
    cause = words.one_line(verdict.cause)
    return [*lines, f"  └─ {cause}"]


def _answer(node: Evidence, labels: Mapping[str, str]) -> str:
    known = ", ".join(labels.get(key, words.one_line(key)[:6]) for key in node.trials)
    noun = "trial" if len(node.trials) == 1 else "trials"
    source = f" [{noun} {known}]" if known else ""
    return f"{words.one_line(node.answer)}. {words.one_line(node.detail)}{source}".rstrip()


def _table(records: Sequence[TrialRecord], width: int) -> list[str]:
    rows = [
        {
            "#": words.label(record),
            "role": record.spec.role,
            "change": "each sample alone" if record.spec.role == "scan" else words.change(record),
            "from": f"{record.spec.from_step:,}",
            "steps": f"{record.steps:,}",
            "loss": words.losses(record),
            "outcome": words.outcome(record),
        }
        for record in records
    ]
    head = {name: name for name in rows[0]}
    sizes = {name: max(columns(row[name]) for row in [head, *rows]) for name in head}
    for dropped in ("loss", "steps", "from"):
        spare = width - 2 * len(sizes) - sum(sizes.values())
        if sizes["change"] + spare >= min(sizes["change"], FEWEST_COLUMNS):
            break
        del sizes[dropped]  # what changed is told before what is in the report too
    spare = width - 2 * len(sizes) - sum(sizes.values())
    sizes["change"] = max(12, sizes["change"] + min(0, spare))
    lines = []
    for row in [head, *rows]:
        cells = [
            cell.rjust(size) if name in {"from", "steps"} else pad(cell, size)
            for name, size in sizes.items()
            for cell in [cut(row[name], size)]
        ]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return lines
