"""A verdict as one HTML file that needs nothing else: no network, no fonts, no server.

It has to work where MLflow shows it, in an `<iframe sandbox="allow-scripts">`: no storage, no
clipboard permission, no navigation. So everything is in the file, and scripts only add comfort.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, get_args

import jinja2
from markupsafe import Markup

from stabexp.records import BLAMELESS, Cause, Cure, TrialRecord
from stabexp.reporting import figures, words
from stabexp.reporting.links import safe_link
from stabexp.reporting.patch import patch_yaml
from stabexp.reporting.report import Report


def verdict_page(report: Report) -> str:
    """Return the page as HTML text, to be stored as UTF-8."""
    verdict, trial_steps = report.verdict, report.trial_steps
    records = words.ordered(report.trials)
    page: str = _template().render(
        verdict=verdict,
        trials=records,
        by_key={record.spec.key: record for record in records},
        links={key: safe for key, link in report.links.items() if (safe := safe_link(link))},
        figures=figures.figures(verdict, records, steps=report.steps, trial_steps=trial_steps),
        legend=figures.legend(records, trial_steps),
        ladders=words.ladders(records),
        cures={cure.variable: cure for cure in verdict.cures},
        robust={cure.trial for cure in verdict.cures if cure.robust},
        causes=get_args(Cause),
        excluded={item.variable: item for item in verdict.ruled_out},
        patch=patch_yaml(verdict.fix, report.experiment) if verdict.fix else "",
        commands=words.commands(verdict, report.commands),
        experiment=report.experiment.strip("\n"),
        fingerprint=report.fingerprint,
    )
    return page


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
        words=words, BLAMELESS=BLAMELESS, kind_of=figures.kind_of, ladder_note=_ladder_note
    )
    environment.filters["svg"] = Markup  # our own charts only; they escape what they show
    return environment.get_template("page.html.j2")


def _without_control_characters(value: Any) -> Any:
    return words.clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _ladder_note(cure: Cure | None, records: Sequence[TrialRecord]) -> str:
    """Return in one sentence what one variable's doses showed."""
    if cure is None:
        survivors = [record for record in records if record.outcome == "stalled"]
        if survivors:
            return "No dose cured: the strong ones survived without learning."
        return "No dose cured."
    name = words.dose(cure.variable, cure.dose)
    if not cure.robust:
        return f"{name} cures, but the next stronger dose does not: not a robust cure."
    text = f"{name} is the mildest robust cure"
    if cure.milder_dose is not None:
        text += f"; {words.dose(cure.variable, cure.milder_dose)} does not cure"
    if cure.removed == cure.removed:
        text += f"; it takes away {100 * cure.removed:.0f} % of the healthy update size"
    return text + "."
