"""A verdict told to people: a page for the browser, a note for MLflow, text for the terminal.

The three say the same thing in the same words (`words`). They only read records; nothing here
decides, trains or stores.
"""

from __future__ import annotations

from stabexp.reporting.note import verdict_note
from stabexp.reporting.page import verdict_page
from stabexp.reporting.report import Report, gather
from stabexp.reporting.text import trial_line, verdict_renderable, verdict_text

__all__ = [
    "Report",
    "gather",
    "trial_line",
    "verdict_note",
    "verdict_page",
    "verdict_renderable",
    "verdict_text",
]
