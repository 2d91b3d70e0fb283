"""A verdict as Markdown for an issue or a pull request, and for whoever reads files.

GitHub and GitLab render headings, tables, fenced code and `<details>`, refuse more than 65,536
characters, and turn `@name` and `#12` into notifications and links. What decides is shown, the rest
is folded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from html import escape

from stabexp.records import Divergence, Evidence, StepRecord, TrialRecord, Verdict
from stabexp.reporting import words
from stabexp.reporting.markdown_text import fence, posted
from stabexp.reporting.patch import patch_yaml
from stabexp.reporting.report import Report

MOST_CHARACTERS = 60_000
"""Of the 65,536 that GitHub takes; the rest is left for what people add."""

_MOST_ROWS = 120
_MOST_SETTINGS = 6_000
_LAST_STEPS = 8
_WAS = re.compile(r"^(?P<indent> *)(?P<key>[^\s#].*?): (?P<value>.*?)  # was (?P<old>.*)$")


def verdict_markdown(report: Report, *, folded: bool = True) -> str:
    """Return at most `MOST_CHARACTERS` characters; rows of the table are dropped to fit.

    Args:
        folded: Whether long parts are folded away; MLflow's viewer does not know how.
    """
    part = _folded if folded else _open
    verdict = report.verdict
    records = words.ordered(report.trials)
    labels = {record.spec.key: words.label(record) for record in records}
    head = [
        f"### {posted(_headline(verdict), 300)}",
        f"**{posted(verdict.summary, 1500)}**",
        f"Confidence {words.confidence(verdict.confidence)}. "
        f"{posted(words.incident(verdict), 500)} Cost: {words.cost(verdict)}.",
        *_at_fault(verdict),
        *_fix(verdict, report.experiment),
        *_next(verdict),
    ]
    path = part("How it was decided", _path(verdict.path, labels))
    rest = [part("Ruled out", _ruled_out(verdict))] if verdict.ruled_out else []
    if len(report.experiment) <= _MOST_SETTINGS and report.experiment.strip():
        settings = fence(words.clean(report.experiment).strip("\n"), "yaml")
        rest.append(part("The experiment", settings))
    if report.fingerprint:
        rest.append(part("Where it ran", _environment(report.fingerprint)))
    rest.append(f"Run {_code(verdict.run_id)}. See it: {_code(f'stabexp ui {verdict.run_id}')}")
    for rows in (*range(min(len(records), _MOST_ROWS), 0, -10), 0):
        text = "\n\n".join([*head, path, *_trials(records, rows, part), *rest]) + "\n"
        if len(text) <= MOST_CHARACTERS:
            return text
    return "\n\n".join([*head, rest[-1]])[:MOST_CHARACTERS]


def run_markdown(
    run_id: str,
    *,
    divergence: Divergence | None,
    steps: Sequence[StepRecord],
    events: Sequence[Mapping[str, object]] = (),
    experiment: str = "",
) -> str:
    """Return what is known of a run that was not bisected."""
    if divergence is None:
        told = f"Run {run_id} did not diverge in {words.count(len(steps), 'step')}"
        parts = [f"### {posted(told, 300)}"]
    else:
        told = f"Run {run_id} diverged at step {divergence.detected:,}"
        parts = [
            f"### {posted(told, 300)}",
            f"{posted(divergence.message, 1000)}\n\nThe onset is step {divergence.onset:,}, the "
            f"pattern {posted(divergence.pattern.replace('_', ' '), 100)}. Why is not known yet.",
            f"Find out why:\n\n{fence(f'stabexp bisect {words.one_line(run_id)}', '')}",
        ]
    if steps:
        rows = ["| Step | Loss | Gradient norm | Rate |", "|---:|---:|---:|---:|"]
        rows += [
            f"| {record.step:,} | {words.figure(record.loss)} | {words.figure(record.grad_norm)} "
            f"| {words.figure(record.lr)} |"
            for record in steps[-_LAST_STEPS:]
        ]
        parts.append("The last steps:\n\n" + "\n".join(rows))
    found = [
        f"- step {posted(str(event.get('step', '?')), 20)}: {posted(str(event['message']), 300)}"
        for event in events
        if event.get("message")
    ]
    if found:
        parts.append(_folded("What was noticed", "\n".join(found[:40])))
    if experiment.strip() and len(experiment) <= _MOST_SETTINGS:
        parts.append(_folded("The experiment", fence(words.clean(experiment).strip("\n"), "yaml")))
    return "\n\n".join(parts)[:MOST_CHARACTERS] + "\n"


def _headline(verdict: Verdict) -> str:
    if verdict.divergence.detector == "none":
        return f"Run {verdict.run_id} was examined: {verdict.cause}"
    return f"Run {verdict.run_id} diverged at step {verdict.divergence.detected:,}: {verdict.cause}"


def _at_fault(verdict: Verdict) -> list[str]:
    found = [f"- {heading}: {posted(text, 800)}" for heading, text in words.culprit(verdict)]
    found += [f"- Still possible: {posted(f'{c}: {w}', 600)}" for c, w in words.possible(verdict)]
    parts = ["\n".join(found)] if found else []
    if text := words.no_return(verdict):
        parts.append(posted(text, 500))
    return parts


def _fix(verdict: Verdict, experiment: str) -> list[str]:
    told = posted(words.proof(verdict), 1000)
    if not verdict.fix:
        return ["#### Fix", told]
    return ["#### Fix", fence(as_diff(patch_yaml(verdict.fix, experiment))[:8000], "diff"), told]


def as_diff(patch: str) -> str:
    """Return a fix with the values it replaces as lines of a diff."""
    lines: list[str] = []
    for line in patch.splitlines():
        if (found := _WAS.match(line)) is None:
            mark = " " if line.rstrip().endswith(":") else "+"
            lines.append(f"{mark}{line}")
            continue
        start = f"{found['indent']}{found['key']}: "
        if found["old"] != "not set":
            lines.append(f"-{start}{found['old']}")
        lines.append(f"+{start}{found['value']}")
    return "\n".join(lines)


def _next(verdict: Verdict) -> list[str]:
    if not verdict.next_command:
        return []
    return ["#### Next", fence(words.one_line(verdict.next_command)[:1000], "sh")]


def _path(path: Sequence[Evidence], labels: Mapping[str, str]) -> str:
    lines = []
    for number, node in enumerate(path, 1):
        known = [posted(labels.get(key, key), 12) for key in node.trials]
        noun = "trial" if len(known) == 1 else "trials"
        cited = ", ".join(known[:12]) + (", …" if len(known) > 12 else "")
        source = f" ({noun} {cited})" if known else ""
        question, answer, detail = (
            posted(text, 600) for text in (node.question, node.answer, node.detail)
        )
        lines.append(f"{number}. {question} **{answer}.** {detail}{source}")
    return "\n".join(lines)


def _trials(
    records: Sequence[TrialRecord], shown: int, part: Callable[[str, str], str]
) -> list[str]:
    if not records or not shown:
        return []
    rows = [
        "| # | Role | Change | From | Steps | Loss | Outcome |",
        "|---|---|---|---:|---:|---|---|",
    ]
    for record in records[:shown]:
        rows.append(
            f"| {posted(words.label(record), 20)} | {record.spec.role} "
            f"| {posted(_change(record), 160)} | {record.spec.from_step:,} "
            f"| {record.steps:,} | {words.losses(record)} | {words.outcome(record)} |"
        )
    if left := len(records) - shown:
        rows.append(f"\n{words.count(left, 'more trial')} not shown.")
    return [part(words.count(len(records), "trial").capitalize(), "\n".join(rows))]


def _change(record: TrialRecord) -> str:
    return "each sample alone" if record.spec.role == "scan" else words.change(record)


def _ruled_out(verdict: Verdict) -> str:
    return "\n".join(
        f"- **{posted(item.variable, 60)}**: "
        f"{'cures the symptom, is not the cause: ' if item.masker else ''}{posted(item.why, 600)}"
        for item in verdict.ruled_out
    )


def _environment(fingerprint: Mapping[str, object]) -> str:
    rows = ["| | |", "|---|---|"]
    rows += [f"| {posted(key, 60)} | {posted(str(v), 200)} |" for key, v in fingerprint.items()]
    return "\n".join(rows[:60])


def _folded(title: str, content: str) -> str:
    # Without the empty lines the hosts take what is inside for HTML.
    return f"<details>\n<summary>{escape(title)}</summary>\n\n{content}\n\n</details>"


def _open(title: str, content: str) -> str:
    return f"#### {title}\n\n{content}"


def _code(text: str) -> str:
    plain = words.one_line(text).replace("`", "'")
    return f"`{plain}`"
