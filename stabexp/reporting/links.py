"""Which addresses a report may link to: web pages and places relative to it, nothing that runs."""

from __future__ import annotations

import re

from stabexp.reporting.words import clean


def safe_link(address: str) -> str:
    """Return the address when it is http(s) or relative, else an empty string.

    `javascript:` and `data:` addresses would run code in the reader's browser.
    """
    address = clean(address).strip()
    if any(char.isspace() for char in address):
        return ""
    scheme = re.match(r"([a-zA-Z][a-zA-Z0-9+.-]*):", address)
    if scheme and scheme[1].lower() not in {"http", "https"}:
        return ""
    return address
