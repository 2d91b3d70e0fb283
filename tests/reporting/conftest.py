"""A recorded bisect to report on, without running one."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from stabexp.records import Culprit, Hypothesis

# Loaded by path: tests are not a package, and the browser tests report on the same bisect.
_EXAMPLE = runpy.run_path(str(Path(__file__).with_name("bisect_example.py")))
_CASES = runpy.run_path(str(Path(__file__).with_name("report_cases.py")))["CASES"]


@pytest.fixture(scope="session")
def cases():
    """Kind of report → what makes one."""
    return _CASES


@pytest.fixture(scope="session")
def bisect():
    return _EXAMPLE["bisect"]()


@pytest.fixture(scope="session")
def experiment():
    return _EXAMPLE["EXPERIMENT"]


HOSTILE = "<script>alert(1)</script> \"'> & | `x` 学习率过高 \x1b[31m\x00 \u202e"


@pytest.fixture(scope="session")
def hostile(bisect):
    """The same bisect with hostile text wherever a user's or a program's text can go."""
    verdict, trials, trial_steps = bisect.verdict, bisect.trials, bisect.trial_steps
    spoiled = [
        replace(
            record,
            name=HOSTILE,
            note=HOSTILE,
            mismatch=3 if record.spec.role == "control" else None,
            mismatch_field=HOSTILE,
            spec=replace(record.spec, reason=HOSTILE),
        )
        for record in trials
    ]
    keys = {old.spec.key: new.spec.key for old, new in zip(trials, spoiled, strict=True)}
    path = [
        replace(node, question=HOSTILE, answer=HOSTILE, detail=HOSTILE, trials=(*keys, HOSTILE))
        for node in verdict.path
    ]
    return bisect._replace(
        verdict=replace(
            verdict,
            run_id=HOSTILE,
            bisect_id=HOSTILE,
            summary=HOSTILE,
            telemetry=HOSTILE,
            next_command=HOSTILE,
            path=tuple(path),
            culprit=Culprit(
                kind=HOSTILE,
                place=HOSTILE,
                detail=HOSTILE,
                remedy=HOSTILE,
                code=HOSTILE,
                samples=(7,),
                modules=(HOSTILE,),
            ),
            point_of_no_return=120,
            hypotheses=(Hypothesis(cause="data", why=HOSTILE, weight=0.5),),
            ruled_out=tuple(replace(item, why=HOSTILE) for item in verdict.ruled_out),
            fix={"optimizer.lr": HOSTILE, HOSTILE: {"a": [HOSTILE]}},
            divergence=replace(verdict.divergence, message=HOSTILE, detector=HOSTILE),
        ),
        trials=spoiled,
        trial_steps={keys[key]: records for key, records in trial_steps.items()},
    )
