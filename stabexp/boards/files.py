"""The dashboard and the alert rules that come with the package, and how they are written out."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

from stabexp.errors import StabexpError

DASHBOARD = "grafana_dashboard.json"
RULES = "alert_rules.yaml"


def packaged(name: str) -> str:
    """Return the text of one of the files that come with the package."""
    return (files("stabexp.boards") / name).read_text("utf-8")


def write_out(name: str, to: Path) -> Path:
    """Write a packaged file and return where it is.

    Args:
        name: `DASHBOARD` or `RULES`.
        to: A file, or a folder that it is written into.

    Raises:
        StabexpError: If it cannot be written; an older file is still there then.
    """
    target = to / name if to.is_dir() else to
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(packaged(name), "utf-8")
        os.replace(temporary, target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StabexpError(
            f"{target}: cannot be written: {error.strerror}; name a file in a folder that is there"
        ) from error
    return target
