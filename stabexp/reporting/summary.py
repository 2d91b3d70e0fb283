"""A run in a few lines, for a notebook: what became of it, why, and what to type next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from stabexp.records import Divergence, Verdict
from stabexp.reporting import words
from stabexp.reporting.markdown_text import prose


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What is told of a run."""

    run_id: str
    status: str
    steps: int
    last_loss: float
    divergence: Divergence | None
    verdict: Verdict | None
    places: Sequence[tuple[str, str]] = ()
    """What is where, as (attribute, what it is)."""

    def rows(self) -> list[tuple[str, str]]:
        """Return (what, value) pairs, the most important first."""
        found = [("steps", f"{self.steps:,}"), ("last loss", words.figure(self.last_loss))]
        crash = self.divergence
        if crash is not None:
            told = f"from step {crash.onset:,}, detected at {crash.detected:,}: {crash.message}"
            found.append(("diverged", words.one_line(told)))
        verdict = self.verdict
        if verdict is not None:
            found.append(("verdict", words.one_line(verdict.summary)))
            found.append(("cause", f"{verdict.cause}, confidence {verdict.confidence:.2f}"))
            if verdict.culprit is not None:
                at = f"{verdict.culprit.place}: {verdict.culprit.detail}"
                found.append(("at fault", words.one_line(at)))
            if verdict.fix:
                fix = ", ".join(f"{key}: {value}" for key, value in verdict.fix.items())
                found.append(("fix", f"{fix}{' (proved)' if verdict.fix_proved else ''}"))
            found.append(("cost", words.cost(verdict)))
        if self.next_command:
            found.append(("next", self.next_command))
        return found

    @property
    def next_command(self) -> str:
        """What to type next; empty for a run that trained to its end."""
        if self.verdict is not None:
            return self.verdict.next_command
        return f"stabexp bisect {self.run_id}" if self.divergence is not None else ""

    def markdown(self) -> str:
        """Return the summary in Markdown."""
        lines = [
            f"### {prose(self.run_id, 120)}: {prose(self.status, 60)}",
            "",
            "| | |",
            "|---|---|",
        ]
        lines += [f"| {what} | {self._cell(what, value)} |" for what, value in self.rows()]
        lines += ["", " · ".join(f"`.{name}` {prose(what, 80)}" for name, what in self.places)]
        return "\n".join(lines) + "\n"

    def _cell(self, what: str, value: str) -> str:
        return f"`{value.replace('|', chr(92) + '|')}`" if what == "next" else prose(value, 600)

    def html(self) -> str:
        """Return the summary in HTML."""
        rows = "".join(
            f"<tr><th style='text-align:left;vertical-align:top;white-space:nowrap'>{what}</th>"
            f"<td style='text-align:left'>{self._html_cell(what, value)}</td></tr>"
            for what, value in self.rows()
        )
        places = " · ".join(
            f"<code>.{escape(name)}</code> {escape(what)}" for name, what in self.places
        )
        return (
            f"<div><strong>{escape(self.run_id)}</strong>: {escape(self.status)}"
            f"<table style='margin:.5em 0'>{rows}</table>"
            f"<div style='font-size:.9em;opacity:.8'>{places}</div></div>"
        )

    def _html_cell(self, what: str, value: str) -> str:
        text = escape(words.clean(value))
        return f"<code>{text}</code>" if what == "next" else text

    def text(self) -> str:
        """Return the summary as plain text."""
        rows = self.rows()
        width = max(len(what) for what, _ in rows)
        lines = [f"run {self.run_id}: {self.status}"]
        return "\n".join([*lines, *(f"  {what:<{width}}  {value}" for what, value in rows)])
