"""What a bisect has gathered, written down: facts for tests of single questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bisection.scripted_runs import RUN
from bisection.scripted_world import DETECTED, GOOD, OUTCOMES, SETUP, divergence

from stabexp.bisection.facts import Facts, LadderFacts
from stabexp.bisection.plan import PLACEBOS, WATCHED
from stabexp.records import Change, Cure, TrialRecord, TrialSpec


def change(text: str) -> Change:
    """Return the change that "precision fp32" or "learning_rate 0.5" names."""
    variable, dose = text.split(" ", 1)
    try:
        return Change(variable=variable, dose=float(dose))
    except ValueError:
        return Change(variable=variable, dose=dose)


def shown(
    letter: str,
    *changes: Change | str,
    role: str = "dose",
    start: int = GOOD,
    last: int = 131,
    **fields: Any,
) -> TrialRecord:
    """Return what a trial with these changes showed, by the letter of its outcome."""
    made = tuple(change(c) if isinstance(c, str) else c for c in changes)
    spec = TrialSpec(role=role, changes=made, from_step=start, until_step=last + 1)  # type: ignore[arg-type]
    found = divergence() if letter in "dl" else None
    record = TrialRecord(
        spec=spec, outcome=OUTCOMES[letter], last_step=last, divergence=found, note="as written"
    )
    return replace(record, **fields)


def control(start: int = GOOD, **fields: Any) -> TrialRecord:
    return shown("d", role="control", start=start, last=DETECTED, **fields)


def seen(**metrics: float) -> tuple[TrialRecord, ...]:
    """Return a control with summary figures."""
    return (control(metrics=metrics),)


def found(**findings: Any) -> tuple[TrialRecord, ...]:
    """Return a control with what its instruments found."""
    watched = control(findings={"rules": [], **findings})
    return (replace(watched, spec=replace(watched.spec, instruments=WATCHED)),)


def ladder(
    variable: str,
    letters: str,
    doses: Sequence[Any],
    *,
    start: int = GOOD,
    last: int = 131,
    robust: bool = True,
    metrics: Mapping[str, float] | None = None,
    slow: tuple[str, ...] = (),
) -> LadderFacts:
    trials = tuple(
        shown(
            letter,
            Change(variable=variable, dose=dose),
            start=start,
            last=last,
            metrics=metrics or {},
        )
        for letter, dose in zip(letters, doses, strict=True)
    )
    cured = [t for t in trials if t.outcome == "cured"]
    cure = None
    if cured:
        cure = Cure(
            variable=variable,
            dose=cured[0].spec.dose,  # type: ignore[arg-type]
            original=None,
            stronger_dose=None,
            milder_dose=None,
            robust=robust,
            trial=cured[0].spec.key,
            removed=0.0,
        )
    return LadderFacts(variable=variable, trials=trials, cure=cure, slow=slow)


def cut_short(variable: str) -> LadderFacts:
    return LadderFacts(variable=variable, undecided=True, skipped="the budget ran out")


RATE = ladder("learning_rate", "dcc", (0.7, 0.5, 0.1))
RAMP = ladder("warmup", "dc", (50, 100), start=0, last=300)
CLIP = ladder("clip_norm", "dcc", (4.0, 2.0, 1.0), metrics={"clipped_share": 0.1})
WIDER = ladder("precision", "cc", ("bf16", "fp32"))
LARGER = ladder("batch_size", "cc", (4, 16), metrics={"early_grad_norm": 1.0})
FAILED = {
    "learning_rate": ladder("learning_rate", "dd", (0.5, 0.1)),
    "precision": ladder("precision", "dd", ("bf16", "fp32")),
    "batch_size": ladder("batch_size", "dd", (2, 4)),
    "clip_norm": ladder("clip_norm", "ds", (2.0, 1.0)),
    "warmup": ladder("warmup", "dd", (50, 100), start=0),
}


def placebos(letters: str = "dd", *, start: int = GOOD) -> tuple[TrialRecord, ...]:
    """Return the placebos by letter: a slightly lower rate, another order of the data."""
    return tuple(
        shown(letter, one, role="placebo", start=start)
        for letter, one in zip(letters, PLACEBOS, strict=True)
    )


def facts(*ladders: LadderFacts, setup: Mapping[str, Any] | None = None, **fields: Any) -> Facts:
    """Return facts of a run that crashes again, and on which nothing else was found."""
    given: dict[str, Any] = {
        "setup": replace(SETUP, **(setup or {})),
        "divergence": divergence(),
        "records": RUN,
        "good_step": GOOD,
        "controls": found(),
        "placebos": placebos(),
        "ladders": {lad.variable: lad for lad in ladders},
    }
    return Facts(**(given | fields))


def location(**fields: Any) -> dict[str, Any]:
    """Return what the locator found: an operation in the forward pass of a module."""
    found = {
        "step": 40,
        "operation": "log",
        "source": "train.py:31",
        "module": "head",
        "phase": "forward",
        "reason": "log_of_zero",
        "explanation": "log of 0 is -inf",
        "remedy": "clamp before the log",
        "code": "loss = -p.log()",
        "sample_ids": [80],
        "harmless": False,
    }
    return found | fields


def rule(name: str = "no_zero_grad", **fields: Any) -> dict[str, Any]:
    """Return what the rule watcher found: a certain breach that a replay cannot prove."""
    found = {
        "rule": name,
        "step": 31,
        "place": "train.py:12",
        "detail": "gradients of 2 updates add up",
        "remedy": "call zero_grad",
        "strength": "certain",
        "samples": [],
        "cure": None,
    }
    return found | fields
