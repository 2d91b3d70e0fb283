"""A verdict as one HTML file that needs nothing else: no network, no fonts, no server.

It has to work where MLflow shows it, in an `<iframe sandbox="allow-scripts">`: no storage, no
clipboard permission, no navigation. So everything is in the file, and scripts only add comfort.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from stabexp.records import BLAMELESS, Cure, TrialRecord
from stabexp.reporting import figures, svg_document, words
from stabexp.reporting.assurance import assurance
from stabexp.reporting.dose_chart import dose_chart
from stabexp.reporting.layer_section import layer_section
from stabexp.reporting.links import safe_link
from stabexp.reporting.marks import mark_shapes
from stabexp.reporting.patch import patch_yaml
from stabexp.reporting.report import Report
from stabexp.reporting.sample_section import sample_section
from stabexp.reporting.tree_chart import tree_of


@dataclass(frozen=True, slots=True, kw_only=True)
class DoseLadder:
    """One variable's doses as the page shows them."""

    variable: str
    records: list[TrialRecord]
    chart: str
    note: str


def verdict_page(report: Report) -> str:
    """Return the page as HTML text, to be stored as UTF-8."""
    verdict, trial_steps = report.verdict, report.trial_steps
    records = words.ordered(report.trials)
    drawn = figures.drawn_trials(verdict, records, trial_steps)
    page: str = _template().render(
        verdict=verdict,
        trials=records,
        by_key={record.spec.key: record for record in records},
        links={key: safe for key, link in report.links.items() if (safe := safe_link(link))},
        tree=tree_of(verdict),
        figures=figures.figures(verdict, records, steps=report.steps, trial_steps=trial_steps),
        legend=figures.legend(drawn),
        checks=assurance(report),
        ladders=_ladders(report),
        layers=layer_section(report),
        samples=sample_section(report.samples),
        robust={cure.trial for cure in verdict.cures if cure.robust},
        excluded={item.variable: item for item in verdict.ruled_out},
        patch=patch_yaml(verdict.fix, report.experiment) if verdict.fix else "",
        commands=words.commands(verdict, report.commands),
        experiment=report.experiment.strip("\n"),
        fingerprint=report.fingerprint,
    )
    return page.lstrip()


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_without_control_characters,
    )
    environment.globals.update(
        words=words,
        BLAMELESS=BLAMELESS,
        mark_shapes=mark_shapes,
        told=_told,
        picture_style=svg_document.style(".picture"),
    )
    environment.filters["svg"] = Markup  # our own charts only; they escape what they show
    return environment.get_template("page.html.j2")


def _without_control_characters(value: Any) -> Any:
    return words.clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _told(record: TrialRecord) -> str:
    """Return what a trial showed, without the part of its note that only says it again."""
    if record.outcome == "inconclusive":
        return words.finding(record)
    text, note = words.finding(replace(record, note="")), words.one_line(record.note)
    if not note or (record.outcome == "cured" and note.startswith("no divergence in")):
        return text
    return f"{text} {note[0].upper()}{note[1:].rstrip('.')}."


def _ladders(report: Report) -> list[DoseLadder]:
    cures = {cure.variable: cure for cure in report.verdict.cures}
    why = {item.variable: words.one_line(item.why) for item in report.verdict.ruled_out}
    controls = [record for record in report.trials if record.spec.role == "control"]
    found = []
    for index, (variable, records) in enumerate(words.ladders(report.trials).items()):
        start = records[0].spec.from_step
        alike = [record for record in controls if record.spec.from_step == start]
        cure = cures.get(variable)
        chart = dose_chart(
            variable,
            records,
            name=f"dose-{index}",
            cure=cure,
            control=next(iter(alike or controls), None),
        )
        note = _ladder_note(cure, records, why.get(variable, ""))
        found.append(DoseLadder(variable=variable, records=records, chart=chart, note=note))
    return found


def _ladder_note(cure: Cure | None, records: Sequence[TrialRecord], why: str) -> str:
    """Return in one sentence what one variable's doses showed.

    Args:
        cure: The mildest cure, None without one.
        records: The dose trials.
        why: What the verdict says of the variable; empty where it says nothing.
    """
    if cure is None:
        if why:
            return f"{why[0].upper()}{why[1:].rstrip('.')}."
        if any(record.outcome == "stalled" for record in records):
            return "No dose cured: the strong ones survived without learning."
        return "No dose cured robustly."
    name = words.dose(cure.variable, cure.dose)
    if not cure.robust:
        return f"{name} cures, but the next stronger dose does not: not a robust cure."
    text = f"{name} is the mildest robust cure"
    if cure.milder_dose is not None:
        text += f"; {words.dose(cure.variable, cure.milder_dose)} does not cure"
    if cure.removed >= 0.005:
        text += f"; it takes away {100 * cure.removed:.0f} % of the healthy update size"
    return text + "."
