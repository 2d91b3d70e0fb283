"""A trial as MLflow lists it: its name, what it carries, and a note that stands on its own.

Whoever opens one trial out of thirty has not read the report. So the note says which question the
trial was to answer, what came of it, and where the whole story is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stabexp.records import Outcome, TrialRecord, TrialSpec
from stabexp.tracking.run_directory import EXPERIMENT_ID, PARENT_ID, TOP_ID
from stabexp.tracking.web_view import (
    CHANGED_PARAM,
    COLOURS,
    DOSE_PARAM,
    END_LOSS_METRIC,
    FINDING_TAG,
    OUTCOME_PARAM,
    SETTINGS_PREFIX,
    START_PARAM,
    SURVIVED_METRIC,
    artifact_link,
    run_link,
    saved_view_url,
)

MEANINGS: Mapping[Outcome, str] = {
    "cured": "It reached its horizon and still learned: with this change the crash stays away.",
    "stalled": "It reached its horizon without learning: not crashing is not enough.",
    "delayed": "It crashed clearly later than the unchanged replay, but it crashed.",
    "diverged": "It crashed about as early as the unchanged replay: this change does not help.",
    "inconclusive": "It says nothing about the change by itself.",
}
"""Outcome → what it means, for somebody who opens nothing but this trial."""

_MOST_DOSE = 24
"""Characters of a dose in a name: a list of hundreds of samples would push the rest aside."""
_SAMPLES = ("frozen_scan", "replace_samples")
"""Changes whose dose is a list of samples."""
_UNCHANGED = {
    "control": "unchanged replay",
    "reversal": "original value put back",
    "proof": "proof of the fix",
}


def trial_name(number: int, record: TrialRecord) -> str:
    """Return "03 learning_rate ×0.5: cured"; of a scan the outcome would mean nothing."""
    name = f"{number:02d} {change(record.spec)}"
    return name if record.spec.role == "scan" else f"{name}: {record.outcome}"


def change(spec: TrialSpec) -> str:
    """Return "learning_rate ×0.5", "placebo learning_rate ×1.03", "proof of the fix"."""
    if spec.variable is None:
        return _UNCHANGED.get(spec.role, spec.role)
    role = "" if spec.role == "dose" else f"{spec.role} "
    if spec.variable in _SAMPLES:
        doing = "scan of" if spec.role == "scan" else f"{role}without"
        return f"{doing} {_samples(spec.dose)}"
    return role + " + ".join(f"{item.variable} {_dose(item)}" for item in spec.changes)


def trial_params(spec: TrialSpec, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a trial: what it changes first, then the run's own settings."""
    changed = "samples" if spec.variable in _SAMPLES else spec.variable
    changed = changed or {"proof": "the fix", "reversal": "put back"}.get(spec.role, "nothing")
    short = spec.variable in _SAMPLES or spec.dose is None
    return {
        CHANGED_PARAM: changed,
        DOSE_PARAM: (_samples(spec.dose) if spec.dose is not None else "–") if short else spec.dose,
        START_PARAM: spec.from_step,
        **{f"{SETTINGS_PREFIX}{key}": value for key, value in settings.items()},
        **{f"{SETTINGS_PREFIX}{key}": value for key, value in spec.patch.items()},
    }


def trial_result(record: TrialRecord) -> dict[str, Any]:
    """Return what a finished trial adds: its parameters under "params", figures, and tags."""
    figures = {"verdict/cured": float(record.outcome == "cured")}
    if record.spec.role != "scan":  # its steps are samples, and no loss of the training
        figures |= {
            SURVIVED_METRIC: float(record.steps),
            END_LOSS_METRIC: float(f"{record.end_loss:.4g}"),
        }
    return {
        "params": {OUTCOME_PARAM: record.outcome},
        "metrics": figures,
        "tags": {
            "mlflow.runName": record.name or trial_name(max(0, record.number), record),
            "mlflow.runColor": COLOURS[record.outcome],
            "stabexp.outcome": record.outcome,
            FINDING_TAG: _finding(record),
        },
    }


def trial_note(record: TrialRecord, *, run_id: str, bisect_id: str) -> str:
    """Return the Markdown of a trial's page; ids of MLflow's are put in at upload."""
    spec = record.spec
    name = _plain(record.name or trial_name(max(0, record.number), record))
    steps = f"{record.steps:,} {'sample' if spec.role == 'scan' else 'step'}"
    steps += "" if record.steps == 1 else "s"
    table = saved_view_url("", EXPERIMENT_ID, bisect_id).lstrip("/")
    parts = [
        f"### {name}",
        f"**Question.** {_sentence(spec.reason)}" if spec.reason else "",
        f"**What was changed.** {_what(spec)} It went on from the checkpoint of step "
        f"{spec.from_step:,}, for {steps}."
        if record.steps > 0
        else f"**What was changed.** {_what(spec)}",
        f"**What came of it.** {MEANINGS[record.outcome]} {_sentence(record.note)}".rstrip(),
        f"One trial of the [bisect]({run_link(PARENT_ID)}) of run "
        f"[{_plain(run_id)}]({run_link(TOP_ID)}). [All trials in a table]({table}) · "
        f"[The report]({artifact_link(TOP_ID, 'report/verdict.html')})",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _finding(record: TrialRecord) -> str:
    if record.outcome not in {"diverged", "delayed"}:
        return record.note
    steps = f"{record.steps:,} step" + ("" if record.steps == 1 else "s")
    return f"diverged after {steps}: {record.note}".rstrip(": ")


def _what(spec: TrialSpec) -> str:
    if spec.role == "control":
        return "Nothing. What an unchanged replay does is what every change is compared with."
    if spec.role == "reversal":
        return "In the trial that was cured, the original value was put back."
    if spec.role == "proof":
        patch = ", ".join(f"`{key} = {value}`" for key, value in spec.patch.items())
        return f"The fix: {patch.replace(chr(10), ' ')}." if patch else "The fix."
    if spec.role == "scan":
        return "Nothing is trained: each sample is shown alone to the weights as they were."
    return f"{_plain(change(spec))}, and nothing else."


def _samples(dose: object) -> str:
    number = len([part for part in str(dose).split(",") if part.strip()])
    return f"sample {dose}" if number == 1 else f"{number} samples"


def _dose(item: Any) -> str:
    times = "×" if item.variable in {"learning_rate", "batch_size"} else ""
    text = f"{times}{item.dose}"
    return text if len(text) <= _MOST_DOSE else f"{text[: _MOST_DOSE - 1]}…"


def _sentence(text: str) -> str:
    plain = _plain(text)
    if not plain:
        return ""
    plain = plain[0].upper() + plain[1:]
    return plain if plain.endswith((".", "?", "!")) else f"{plain}."


def _plain(text: str) -> str:
    """Return one line in which nothing means anything to Markdown."""
    line = " ".join(text.split())[:1000]
    for char in "\\`*_[]<>|#":
        line = line.replace(char, f"\\{char}")
    return line
