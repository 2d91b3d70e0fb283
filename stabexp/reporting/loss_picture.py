"""The losses that a verdict rests on, as one picture: the run, the cure, the fix, and its undoing.

It is shown inside a description, where nobody can point at a curve. So it has the few curves that
decided, each with its name written at its end, and not all of the trials.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from stabexp.records import StepRecord, TrialRecord, Verdict
from stabexp.reporting import words
from stabexp.reporting.chart import Marker, line_chart
from stabexp.reporting.curve import Curve
from stabexp.reporting.report import Report
from stabexp.reporting.svg_document import Picture, svg_document

FILE = "loss.svg"
"""Name of the picture in a report's folder."""

_WIDTH, _HEIGHT, _TOP = 960, 330, 56
_STYLE = """<style>
svg{--run:#aab4c2;--cured:#17743f;--diverged:#b3202c;--delayed:#a14207;--stalled:#855300}
@media(prefers-color-scheme:dark){svg{--run:#566170;--cured:#5ccb8b;--diverged:#ff7f7f;
--delayed:#f79a66;--stalled:#e6b450}}
.chart{fill:var(--soft)}.base,.tick{stroke:var(--zero)}.touch{stroke:none;fill:none}
.curve .line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.curve .off{fill:currentColor}.curve .line,.curve .cross{stroke:currentColor}
.marker line{stroke:var(--zero);stroke-dasharray:2 3}.marker text{fill:var(--ink);stroke:none}
.curve.run{color:var(--run)}.curve.run .line{stroke-width:6}
.curve.cured{color:var(--cured)}.end.cured{fill:var(--cured);stroke:none}
.curve.diverged{color:var(--diverged)}.end.diverged{fill:var(--diverged);stroke:none}
.curve.delayed{color:var(--delayed)}.end.delayed{fill:var(--delayed);stroke:none}
.curve.stalled{color:var(--stalled)}.end.stalled{fill:var(--stalled);stroke:none}
.end.run{fill:var(--soft);stroke:none}
</style>"""


def loss_picture(report: Report) -> str:
    """Return an SVG file, with a line below its title that names what is drawn."""
    verdict = report.verdict
    curves = [_curve("run", "", "the run", "run", report.steps)]
    for name, record in deciding(verdict, report.trials):
        steps = report.trial_steps.get(record.spec.key, ())
        if steps:
            title = f"{words.label(record)}: {name}, {record.outcome}"
            curves.append(
                _curve(record.spec.key, words.label(record), title, record.outcome, steps)
            )
    drawn = " · ".join(["wide and grey: the run", *(curve.title for curve in curves[1:])])
    chart = line_chart(
        curves,
        name="loss",
        title="Loss",
        description=f"Loss per step. {drawn}.",
        y_label="loss",
        markers=_markers(verdict),
        width=_WIDTH,
        height=_HEIGHT,
    )
    picture = Picture(
        parts=[_STYLE, f'<g transform="translate(0 {_TOP})">{chart}</g>'],
        title=f"The loss of {words.one_line(verdict.run_id)}, and of the replays that decided",
        subtitle=drawn[:150],
        description=f"Loss per step. {drawn}.",
        width=_WIDTH,
        height=_HEIGHT + _TOP + 8,
    )
    return svg_document(picture)


def deciding(verdict: Verdict, trials: Sequence[TrialRecord]) -> list[tuple[str, TrialRecord]]:
    """Return (what it is, trial) of the replays that decided, in the order in which they ran.

    Without a cause these are the ones that the walk cites, at most four of them.
    """
    by_key = {record.spec.key: record for record in trials}
    proofs = [record for record in trials if record.spec.role == "proof"]
    # The fix lies on top of a cure that it begins before, and goes on from one that it does not.
    hidden = min((r.spec.from_step for r in proofs if not r.spec.from_trial), default=math.inf)
    cured = {cure.trial for cure in verdict.cures if cure.variable == verdict.cause}
    cured |= {record.spec.from_trial for record in proofs}
    found: list[tuple[str, TrialRecord]] = []
    for record in words.ordered(trials):
        if record.spec.role == "reversal":
            found.append(("original value back", record))
        elif record.spec.role == "proof":
            found.append(("the fix", record))
        elif record.spec.key in cured and record.spec.from_step < hidden:
            found.append((_change(record), record))
    if found:
        return found
    cited = [by_key[key] for node in verdict.path for key in node.trials if key in by_key]
    unique = {record.spec.key: record for record in cited if record.spec.role != "scan"}
    return [(_change(record), record) for record in list(unique.values())[:4]]


def _change(record: TrialRecord) -> str:
    return "unchanged replay" if record.spec.role == "control" else words.change(record)


def _curve(key: str, label: str, title: str, kind: str, steps: Sequence[StepRecord]) -> Curve:
    points = [(record.step, record.loss) for record in steps]
    return Curve(key=key, label=label, title=title, kind=kind, points=points)


def _markers(verdict: Verdict) -> list[Marker]:
    if verdict.divergence.detector == "none":
        return []
    return [
        Marker(step=verdict.good_step, label="last good checkpoint", kind="good"),
        Marker(step=verdict.divergence.onset, label="onset", kind="onset"),
    ]
