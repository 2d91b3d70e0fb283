"""The page of a cause: its example's figures, verdict and curves put into the prose."""

from __future__ import annotations

import math
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.pages.cause_runs import Found
from experiments.pages.pictures import loss_curve, picture
from stabexp.records import StepRecord
from stabexp.reporting.chart import Marker

_ABOVE_EXPERIMENTS = re.compile(r"/[^\s'\"]*?/(?=experiments/[\w/]+\.(?:yaml|py)\b)")


def parts(found: Found) -> dict[str, str]:
    """Return the made parts of a cause's page, by name."""
    return {
        "facts": _facts(found),
        "verdict": f"```console\n{verdict_text(found)}\n```",
        "neighbours": _maskers(found),
        "fixed": _fixed(found),
    }


def curves(found: Found) -> str:
    """Return the picture of the run and of the one that was set right, as SVG."""
    example, divergence = found.example, found.verdict.divergence
    markers, most = [], len(found.records)
    if not example.silent:
        markers = [Marker(step=divergence.onset, label="onset", kind="onset")]
        most = max(3 * divergence.detected, 60)
    drawn = []
    if found.fixed:
        drawn.append(
            loss_curve(
                _until(found.fixed, most),
                name=example.fixed_name,
                kind="cured",
                label="2",
                field=example.figure,
            )
        )
    drawn.append(
        loss_curve(
            _until(found.records, most),
            name="as it was",
            kind="diverged",
            label="1",
            field=example.figure,
        )
    )
    figure = "loss" if example.figure == "loss" else "held-out loss"
    return picture(drawn, title=f"{found.cause}: the {figure}", markers=markers, y_label=figure)


def verdict_text(found: Found) -> str:
    """Return the verdict as `stabexp log` prints it, with paths as seen from the repository."""
    command = [sys.executable, "-m", "stabexp.cli", "log", found.run_id, "--root", str(found.root)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, encoding="utf-8")
    text = done.stdout.replace(f" --root {found.root}", "").replace(f"{found.root}/", "")
    lines = _ABOVE_EXPERIMENTS.sub("", text).rstrip().splitlines()
    while lines and (lines[0].startswith((f"run {found.run_id}", "  diverged", "  did not"))):
        del lines[0]
    return "\n".join(line.rstrip() for line in lines)


def _facts(found: Found) -> str:
    verdict, example = found.verdict, found.example
    if example.file is None:
        source = (
            f"`{example.source}`, a run of the benchmark "
            "([its faults](../../experiments/benchmark/catalogue.py))"
        )
    else:
        source = f"[`experiments/{example.source}`](../../experiments/{example.source})"
    crash = verdict.divergence
    if example.silent:
        what = f"trained to its end, {len(found.records)} steps"
    else:
        pattern = crash.pattern.replace("_", " ")
        what = f"diverged at step {crash.detected:,} (onset {crash.onset:,}, {pattern})"
        what += f": {quoted(crash.message)}"
    sure = f", confidence {verdict.confidence:.2f}" if verdict.confidence else ""
    rows = [
        ("trained", source),
        ("what happened", what),
        ("verdict", f"**{verdict.cause}**{sure}"),
        ("cost", f"{verdict.trials} trials, {verdict.replayed_steps:,} replayed steps"),
    ]
    table = "".join(f"| {name} | {text} |\n" for name, text in rows)
    shown = f"The run as it was, and {example.fixed_name}" if example.fixed_name else "The run"
    image = f"![{shown}](../images/causes/{found.cause}.svg)"
    return f"| | |\n| --- | --- |\n{table}\n{image}"


def _maskers(found: Found) -> str:
    hidden = [item for item in found.verdict.ruled_out if item.masker]
    if not hidden:
        return ""
    lines = [f"- `{item.variable}`: {quoted(item.why)}" for item in hidden]
    return "Here the crash also went away with:\n\n" + "\n".join(lines)


def _fixed(found: Found) -> str:
    if not found.fixed:
        return ""
    text = ""
    if fix := found.verdict.fix:
        settings = ", ".join(f"`-o {key}={value}`" for key, value in fix.items())
        text = f"The verdict's own fix here: {settings}. "
    figure = "The loss" if found.example.figure == "loss" else "The held-out loss"
    values = [_value(record, found.example.figure) for record in found.fixed]
    values = [value for value in values if math.isfinite(value)]
    last = statistics.median(values[-10:])
    return (
        f"{text}Set right ({found.example.fixed_name}), it trains to its end: "
        f"{len(found.fixed):,} steps. {figure} goes from {values[0]:.4g} to {last:.4g} (median of "
        "the last ten)."
    )


def _until(records: Sequence[StepRecord], last: int) -> list[StepRecord]:
    return [record for record in records if record.step <= last]


def _value(record: StepRecord, figure: str) -> float:
    return record.loss if figure == "loss" else record.metrics.get(figure, math.nan)


def quoted(text: str) -> str:
    """Return text on one line, safe in a table."""
    return " ".join(text.split()).replace("|", "\\|")


def index(titles: Sequence[tuple[str, str]]) -> str:
    """Return the list of all causes: name and title of each page, in order."""
    return "\n".join(f"- [`{cause}`]({cause}.md): {title}" for cause, title in titles)


def title_of(page: Path) -> str:
    """Return what stands behind the cause in a page's heading."""
    return page.read_text("utf-8").partition("\n")[0].partition("`: ")[2]
