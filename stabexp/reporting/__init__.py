"""A verdict told: a page for the browser, Markdown, a note for MLflow, text, JSON for programs.

All of them say the same thing in the same words (`words`). They only read records; nothing here
decides, trains or stores.
"""

from __future__ import annotations

from stabexp.reporting.document import read_report, report_document, run_document
from stabexp.reporting.markdown import run_markdown, verdict_markdown
from stabexp.reporting.note import verdict_note
from stabexp.reporting.page import verdict_page
from stabexp.reporting.report import Report, gather
from stabexp.reporting.text import trial_line, verdict_renderable, verdict_text

__all__ = [
    "Report",
    "gather",
    "read_report",
    "report_document",
    "run_document",
    "run_markdown",
    "trial_line",
    "verdict_markdown",
    "verdict_note",
    "verdict_page",
    "verdict_renderable",
    "verdict_text",
]
