"""A verdict as the short Markdown note that MLflow shows on top of a run.

MLflow folds a note after about three lines, so the first heading is the verdict itself. It renders
headings, bold, code, tables, lists and links, and cuts what is longer than 8,000 characters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stabexp.records import Evidence, TrialRecord, Verdict
from stabexp.reporting import words
from stabexp.reporting.links import safe_link
from stabexp.reporting.markdown_text import address_in, fence, prose
from stabexp.reporting.patch import patch_yaml
from stabexp.reporting.report import Report

MOST_CHARACTERS = 7500
MOST_ROWS = 25


def verdict_note(
    report: Report, *, links: Sequence[tuple[str, str]] = (), picture: str = ""
) -> str:
    """Return at most `MOST_CHARACTERS` characters of Markdown; trial rows are dropped to fit.

    Args:
        links: (text, address) of where the whole of it is, shown in one line.
        picture: Address of a picture of the losses.
    """
    verdict = report.verdict
    records = words.ordered(report.trials)
    labels = {record.spec.key: words.label(record) for record in records}
    head = [
        f"### {prose(verdict.summary, 600)}",
        f"**Confidence {words.confidence(verdict.confidence)}.** {prose(_incident(verdict), 300)}",
    ]
    found = [(text, safe_link(address)) for text, address in links]
    if shown := [f"[{text}]({address_in(safe)})" for text, safe in found if safe]:
        head.append(" · ".join(shown))
    if safe := safe_link(picture):
        head.append(f"![The losses that decided]({address_in(safe)})")
    head += [*_at_fault(verdict), *_fix(verdict, report.experiment), *_next(verdict)]
    path = [
        "#### How it was decided",
        "\n".join(_step(number, node, labels) for number, node in enumerate(verdict.path, 1)),
    ]
    excluded = _ruled_out(verdict)
    for rows in range(min(len(records), MOST_ROWS), -1, -1):
        table = _table(records[:rows], len(records) - rows, report.links)
        note = "\n\n".join([*head, *path, *table, *excluded])
        if len(note) <= MOST_CHARACTERS:
            return note
    # Not even without the table: keep the verdict and the fix, which people act on.
    return "\n\n".join(head)[:MOST_CHARACTERS]


def _at_fault(verdict: Verdict) -> list[str]:
    found = [f"- **{heading}**: {prose(text, 400)}" for heading, text in words.culprit(verdict)]
    parts = ["#### What is at fault", "\n".join(found)] if found else []
    if text := words.no_return(verdict):
        parts.append(text)
    left = [f"- **{cause}**: {prose(why, 300)}" for cause, why in words.possible(verdict)]
    return [*parts, *(["#### Still possible", "\n".join(left)] if left else [])]


def _incident(verdict: Verdict) -> str:
    return f"{words.incident(verdict)} Cost: {words.cost(verdict)}."


def _step(number: int, node: Evidence, labels: Mapping[str, str]) -> str:
    question, answer, detail = (
        prose(text, 400) for text in (node.question, node.answer, node.detail)
    )
    known = [prose(labels.get(key, key), 12) for key in node.trials]
    shown = ", ".join(known[:8]) + (", …" if len(known) > 8 else "")
    trials = f" (trials {shown})" if len(known) > 1 else f" (trial {shown})" if known else ""
    return f"{number}. {question} **{answer}.** {detail}{trials}"


def _table(records: Sequence[TrialRecord], left_out: int, links: Mapping[str, str]) -> list[str]:
    if not records:
        return []
    rows = ["| Trial | Role | Change | From step | Steps | Outcome |", "|---|---|---|---|---|---|"]
    for record in records:
        address = safe_link(links.get(record.spec.key, ""))
        number = prose(words.label(record), 20)
        name = f"[{number}]({address_in(address)})" if address else number
        rows.append(
            f"| {name} | {record.spec.role} | {prose(_change(record), 120)} "
            f"| {record.spec.from_step:,} | {record.steps:,} | {words.outcome(record)} |"
        )
    parts = ["#### Trials", "\n".join(rows)]
    if left_out:
        parts.append(f"{words.count(left_out, 'more trial')}: see the full report.")
    return parts


def _change(record: TrialRecord) -> str:
    return "each sample alone" if record.spec.role == "scan" else words.change(record)


def _ruled_out(verdict: Verdict) -> list[str]:
    if not verdict.ruled_out:
        return []
    lines = []
    for item in verdict.ruled_out:
        also = "cures the symptom, is not the cause: " if item.masker else ""
        lines.append(f"- **{prose(item.variable, 60)}**: {also}{prose(item.why, 300)}")
    return ["#### Ruled out", "\n".join(lines)]


def _fix(verdict: Verdict, experiment: str) -> list[str]:
    if not verdict.fix:
        return ["#### Fix", words.proof(verdict)]
    patch = patch_yaml(verdict.fix, experiment)
    if len(patch) > 2000:
        return ["#### Fix", words.proof(verdict), "The patch is long; it is in the full report."]
    return ["#### Fix", fence(patch, "yaml"), words.proof(verdict)]


def _next(verdict: Verdict) -> list[str]:
    if not verdict.next_command:
        return []
    return ["#### Next", fence(words.one_line(verdict.next_command)[:500], "")]
