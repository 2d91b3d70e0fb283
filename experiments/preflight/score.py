"""Whether a set-up is told exactly what it deserves, and what is kept of the answer."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import stabexp
from experiments.preflight.setups import Setup

RESULTS = Path(__file__).parent / "results.json"


@dataclass(frozen=True, kw_only=True)
class Scored:
    """What was told of one set-up."""

    title: str
    finding: str
    """What it deserves; empty for a clean one."""
    found: tuple[str, ...]
    seconds: float
    """Of CPU time."""
    example: str = ""
    """Place and figures of the first finding."""

    @property
    def right(self) -> bool:
        """Whether exactly its own finding was told."""
        return self.found == ((self.finding,) if self.finding else ())


def score(setup: Setup) -> Scored:
    """Try one set-up."""
    settings = {**setup.settings, **({"args": dict(setup.args)} if setup.args else {})}
    started = time.process_time()
    result = stabexp.check_setup(setup.function, **settings)
    first = result.findings[0] if result.findings else None
    return Scored(
        title=setup.title,
        finding=setup.finding,
        found=tuple(finding.name for finding in result.findings),
        seconds=round(time.process_time() - started, 2),
        example=f"{first.where}: {first.what}" if first else "",
    )


def kept() -> dict[str, Scored]:
    """Return what was scored so far, by title."""
    rows = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else []
    return {row["title"]: Scored(**row | {"found": tuple(row["found"])}) for row in rows}


def keep(scored: Scored) -> None:
    """Add one result, or renew it."""
    rows = kept() | {scored.title: scored}
    text = json.dumps([asdict(row) for row in rows.values()], indent=1, ensure_ascii=False)
    RESULTS.write_text(text + "\n", "utf-8")
