"""A verdict as plain text for the terminal: the tree as walked, the trials, the fix, what to type.

No colour codes, so it can be piped, logged and compared; `verdict_renderable` adds colour on top.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from stabexp.records import Evidence, TrialRecord, Verdict
from stabexp.reporting import words
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
        *_wrap(words.one_line(verdict.summary), width),
        *_wrap(f"Confidence {words.confidence(verdict.confidence)}.", width),
        "",
        *_wrap(
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
            lines += _wrap(f"{heading}: {text}", width, first="  ", then="    ")
    if text := words.no_return(verdict):
        lines += ["", *_wrap(text, width)]
    if verdict.hypotheses:
        lines += ["", "Still possible, most plausible first"]
        for cause, why in words.possible(verdict):
            lines += _wrap(f"{cause}: {why}", width, first="  - ", then="    ")
    if verdict.telemetry:
        lines += _wrap(
            f"Second opinion, from the step records alone: {words.one_line(verdict.telemetry)}",
            width,
        )
    if verdict.ruled_out:
        lines += ["", "Ruled out"]
        for item in verdict.ruled_out:
            also = "cures the symptom, is not the cause: " if item.masker else ""
            text = f"{words.one_line(item.variable)}: {also}{words.one_line(item.why)}"
            lines += _wrap(text, width, first="  - ", then="    ")
    if records:
        lines += ["", "Trials", *_table(records, width)]
    lines += ["", "Fix"]
    if verdict.fix:
        patch = patch_yaml(verdict.fix, experiment)
        lines += [f"    {line}" for line in patch.splitlines()]
    lines += _wrap(words.proof(verdict), width, first="  ", then="  ")
    if verdict.next_command:
        lines += ["", "Next", f"    {words.one_line(verdict.next_command)}"]
    return "\n".join(lines) + "\n"


def trial_line(record: TrialRecord) -> str:
    """Return one line on one trial: number, change, outcome, and what that rests on."""
    role = "" if record.spec.role == "dose" else f"{record.spec.role}: "
    what = f"{role}{words.change(record)}"
    return f"{words.label(record)}  {_pad(what, 30)}  {record.outcome:<12}  {words.finding(record)}"


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
        lines += _wrap(words.one_line(node.question), width, first=f"{number:>3} ", then="  │ ")
        lines += _wrap(_answer(node, labels), width, first="  │   → ", then="  │     ")
    cause = words.one_line(verdict.cause)
    return [*lines, f"  └─ {cause}"]


def _answer(node: Evidence, labels: Mapping[str, str]) -> str:
    known = ", ".join(labels.get(key, words.one_line(key)[:6]) for key in node.trials)
    noun = "trial" if len(node.trials) == 1 else "trials"
    source = f" [{noun} {known}]" if known else ""
    return f"{words.one_line(node.answer)}. {words.one_line(node.detail)}{source}".rstrip()


def _table(records: Sequence[TrialRecord], width: int) -> list[str]:
    head = ("#", "role", "change", "from", "steps", "loss", "outcome")
    rows = [
        (
            words.label(record),
            record.spec.role,
            words.change(record),
            f"{record.spec.from_step:,}",
            f"{record.steps:,}",
            words.losses(record),
            record.outcome,
        )
        for record in records
    ]
    widths = [max(_columns(row[at]) for row in [head, *rows]) for at in range(len(head))]
    spare = width - 2 - sum(widths) - 2 * (len(head) - 1)
    widths[2] = max(12, widths[2] + min(0, spare))
    lines = []
    for row in [head, *rows]:
        cells = [
            _cut(cell, size).rjust(size) if at in {3, 4} else _pad(_cut(cell, size), size)
            for at, (cell, size) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return lines


def _columns(text: str) -> int:
    """Return how many terminal columns a text takes."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def _pad(text: str, size: int) -> str:
    return text + " " * (size - _columns(text))


def _cut(text: str, size: int) -> str:
    if _columns(text) <= size:
        return text
    while text and _columns(text) > size - 1:
        text = text[:-1]
    return text + "…"


def _wrap(text: str, width: int, *, first: str = "", then: str = "") -> list[str]:
    if text.isascii() or _columns(text) == len(text):
        return textwrap.wrap(
            text, width, initial_indent=first, subsequent_indent=then, break_on_hyphens=False
        ) or [first.rstrip()]
    lines, line = [], first
    for word in text.split():
        rest = word
        gap = "" if line in {first, then} else " "
        if _columns(line + gap + rest) > width and line not in {first, then}:
            lines.append(line)
            line, gap = then, ""
        while _columns(line + gap + rest) > width:  # one "word" of Chinese can fill many lines
            fits = 1
            while _columns(line + gap + rest[: fits + 1]) <= width:
                fits += 1
            lines.append(line + gap + rest[:fits])
            rest, line, gap = rest[fits:], then, ""
        line += gap + rest
    return [*lines, line]
