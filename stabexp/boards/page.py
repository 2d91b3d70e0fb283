"""The endpoint's own page, for whoever opens it in a browser: is it there, and what does it see?"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from html import escape
from pathlib import Path

from stabexp.boards.files import DASHBOARD, RULES
from stabexp.boards.run_view import RunView

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 64rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin-bottom: .25rem; }
p { margin: .25rem 0 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .4rem .9rem .4rem 0; border-bottom: 1px solid #8884;
  white-space: nowrap; vertical-align: top; }
td:first-child { white-space: normal; min-width: 10rem; }
th { font-weight: 600; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.diverged, .failed, .killed { color: light-dark(#b3261e, #ff8a80); font-weight: 600; }
.problem { white-space: normal; color: light-dark(#b3261e, #ff8a80); }
"""


def page(runs: Sequence[RunView], *, root: Path) -> str:
    """Return the page as HTML, without a script and without anything from elsewhere."""
    shown = sorted(runs, key=lambda run: -run.active_since)
    rows = "\n".join(_row(run) for run in shown)
    table = (
        '<div class="wide"><table><thead><tr><th>run</th><th>state</th>'
        '<th class="number">step</th><th class="number">loss</th>'
        '<th class="number">gradient norm</th><th class="number">latest step</th></tr></thead>'
        f"<tbody>\n{rows}\n</tbody></table></div>"
    )
    nothing = "<p>No run is active. The next one is here as soon as it begins.</p>"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>stabexp metrics</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>stabexp metrics</h1>
<p>Runs below <code>{escape(str(root.absolute()))}</code>.
<a href="/metrics">/metrics</a> is for Prometheus;
<a href="/{DASHBOARD}">dashboard</a> and <a href="/{RULES}">alert rules</a> go with it.</p>
{table if shown else nothing}
</body>
</html>
"""


def _row(run: RunView) -> str:
    latest = run.steps.latest
    status = run.status
    cells = ["–"] * 4
    if latest is not None:
        age = _age(time.time() - latest.time)
        cells = [f"{latest.step:,}", _figure(latest.loss), _figure(latest.grad_norm), f"{age} ago"]
    numbers = "".join(f'<td class="number">{escape(cell)}</td>' for cell in cells)
    problem = f'<div class="problem">{escape(run.problem)}</div>' if run.problem else ""
    return (
        f"<tr><td>{escape(run.run_id)}{problem}</td>"
        f'<td class="{escape(status)}">{escape(status)}</td>{numbers}</tr>'
    )


def _figure(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else str(value)


def _age(seconds: float) -> str:
    for size, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {name}"
    return f"{max(0.0, seconds):.0f} s"
