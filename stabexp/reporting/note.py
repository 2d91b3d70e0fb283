"""A verdict as the short Markdown note that MLflow shows on top of a run.

MLflow folds a note after about three lines, so the first heading is the verdict itself. It renders
headings, bold, code, tables, lists and links, and cuts what is longer than 8,000 characters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from stabexp.records import Evidence, TrialRecord, Verdict
from stabexp.reporting import words
from stabexp.reporting.links import safe_link
from stabexp.reporting.patch import patch_yaml
from stabexp.reporting.report import Report

MOST_CHARACTERS = 7500
MOST_ROWS = 25


def verdict_note(report: Report, *, page_link: str = "") -> str:
    """Return at most `MOST_CHARACTERS` characters of Markdown; trial rows are dropped to fit.

    Args:
        page_link: Address of the full report.
    """
    verdict = report.verdict
    records = words.ordered(report.trials)
    labels = {record.spec.key: words.label(record) for record in records}
    head = [
        f"### {_prose(verdict.summary, 600)}",
        f"**Confidence {words.confidence(verdict.confidence)}.** {_prose(_incident(verdict), 300)}",
    ]
    if safe := safe_link(page_link):
        head.append(f"[The full report with curves]({_address(safe)})")
    head += _at_fault(verdict)
    tail = [*_fix(verdict, report.experiment), *_next(verdict)]
    path = [
        "#### How it was decided",
        "\n".join(_step(number, node, labels) for number, node in enumerate(verdict.path, 1)),
    ]
    ruled_out = _ruled_out(verdict)
    rest = "\n\n".join([*head, *path, *ruled_out, *tail])
    for rows in range(min(len(records), MOST_ROWS), -1, -1):
        table = _table(records[:rows], len(records) - rows, report.links)
        note = "\n\n".join([*head, *path, *table, *ruled_out, *tail])
        if len(note) <= MOST_CHARACTERS:
            return note
    # Not even without the table: keep the verdict and the fix, which people act on.
    short = "\n\n".join([*head, *tail])
    return (rest if len(rest) <= MOST_CHARACTERS else short)[:MOST_CHARACTERS]


def _at_fault(verdict: Verdict) -> list[str]:
    found = [f"- **{heading}**: {_prose(text, 400)}" for heading, text in words.culprit(verdict)]
    parts = ["#### What is at fault", "\n".join(found)] if found else []
    if text := words.no_return(verdict):
        parts.append(text)
    left = [f"- **{cause}**: {_prose(why, 300)}" for cause, why in words.possible(verdict)]
    return [*parts, *(["#### Still possible", "\n".join(left)] if left else [])]


def _incident(verdict: Verdict) -> str:
    return f"{words.incident(verdict)} Cost: {words.cost(verdict)}."


def _step(number: int, node: Evidence, labels: Mapping[str, str]) -> str:
    question, answer, detail = (
        _prose(text, 400) for text in (node.question, node.answer, node.detail)
    )
    known = [_prose(labels.get(key, key), 12) for key in node.trials]
    shown = ", ".join(known[:8]) + (", …" if len(known) > 8 else "")
    trials = f" (trials {shown})" if len(known) > 1 else f" (trial {shown})" if known else ""
    return f"{number}. {question} **{answer}.** {detail}{trials}"


def _table(records: Sequence[TrialRecord], left_out: int, links: Mapping[str, str]) -> list[str]:
    if not records:
        return []
    rows = ["| Trial | Role | Change | From step | Steps | Outcome |", "|---|---|---|---|---|---|"]
    for record in records:
        address = safe_link(links.get(record.spec.key, ""))
        number = _prose(words.label(record), 20)
        name = f"[{number}]({_address(address)})" if address else number
        rows.append(
            f"| {name} | {record.spec.role} | {_prose(words.change(record), 120)} "
            f"| {record.spec.from_step:,} | {record.steps:,} | {record.outcome} |"
        )
    parts = ["#### Trials", "\n".join(rows)]
    if left_out:
        parts.append(f"{words.count(left_out, 'more trial')}: see the full report.")
    return parts


def _ruled_out(verdict: Verdict) -> list[str]:
    if not verdict.ruled_out:
        return []
    lines = []
    for item in verdict.ruled_out:
        also = "cures the symptom, is not the cause: " if item.masker else ""
        lines.append(f"- **{_prose(item.variable, 60)}**: {also}{_prose(item.why, 300)}")
    return ["#### Ruled out", "\n".join(lines)]


def _fix(verdict: Verdict, experiment: str) -> list[str]:
    if not verdict.fix:
        return ["#### Fix", words.proof(verdict)]
    patch = patch_yaml(verdict.fix, experiment)
    if len(patch) > 2000:
        return ["#### Fix", words.proof(verdict), "The patch is long; it is in the full report."]
    return ["#### Fix", _fence(patch, "yaml"), words.proof(verdict)]


def _next(verdict: Verdict) -> list[str]:
    if not verdict.next_command:
        return []
    return ["#### Next", _fence(words.one_line(verdict.next_command)[:500], "")]


def _fence(text: str, language: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _prose(text: str, most: int) -> str:
    """Return one line of plain text in which no character means anything to Markdown or HTML."""
    line = words.one_line(text)
    if len(line) > most:
        line = line[: most - 1] + "…"
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    line = re.sub(r"([\\`*_{}\[\]|#~])", r"\\\1", line)
    # A name like http://… must not become a link that nobody meant.
    return re.sub(r"(?i)\b(https?|ftp)://", r"\1:&#47;&#47;", line)


def _address(address: str) -> str:
    for char, code in (("(", "%28"), (")", "%29"), (" ", "%20"), ("|", "%7C"), ("<", "%3C")):
        address = address.replace(char, code)
    return address.replace(">", "%3E").replace("\\", "%5C")
