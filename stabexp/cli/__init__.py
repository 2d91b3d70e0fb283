"""The command line: arguments → one API call → printed result → exit code.

Exit codes: 0 done · 1 error · 2 usage · 3 the run diverged · 4 no verdict (inconclusive or
marginal) · 5 not reproduced · 6 something was found before training · 130 interrupted.
"""

from __future__ import annotations

import sys

from stabexp.cli import (
    advising,
    bisecting,
    diagnosing,
    examining,
    looking,
    recovering,
    running,
    warning,
)
from stabexp.cli.app import INTERRUPTED, app, say
from stabexp.errors import StabexpError

__all__ = [
    "advising",
    "app",
    "bisecting",
    "diagnosing",
    "examining",
    "looking",
    "main",
    "recovering",
    "running",
    "warning",
]


def main() -> None:
    """Run the command line; every error of ours becomes one message and an exit code."""
    try:
        app(standalone_mode=True)
    except StabexpError as error:
        say(f"error: {error}")
        for note in getattr(error, "__notes__", ()):
            say(note)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        say("interrupted")
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        say(f"error: {place}{error.strerror or error}; check that place, its space and permissions")
        sys.exit(1)
