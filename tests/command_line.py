"""What tests of commands share: where no server is, and what a command left behind."""

from __future__ import annotations

NOWHERE = "http://127.0.0.1:9"
"""Nobody listens there, so nothing waits for it."""


class Done:
    """What a command did."""

    def __init__(self, code: int, out: str, errors: str) -> None:
        self.code, self.out, self.errors = code, out, errors
