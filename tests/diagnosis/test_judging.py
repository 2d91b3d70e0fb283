"""A log is judged as the live run would have been, as far as it shows what the run showed."""

from __future__ import annotations

import json
import math

import pytest
from diagnosis.agreement import as_csv, as_events
from diagnosis.conftest import calm

import stabexp
from stabexp.detectors import build
from stabexp.diagnosis.judging import first_finding
from stabexp.errors import ConfigError
from stabexp.records import StepRecord

NAN, INF = math.nan, math.inf


def diagnosed(write, **columns):
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    text = "".join(json.dumps({"step": i, **row}) + "\n" for i, row in enumerate(rows))
    return stabexp.diagnose(write("log.jsonl", text))


def record(step, loss, norm):
    return StepRecord(step=step, time=0.0, loss=loss, lr=0.1, grad_norm=norm)


GROWING = [*calm(50), *(1.5 * 1.3**i for i in range(20))]
NOISE = [1.0 + 0.1 * math.sin(3.1 * i) for i in range(200)]


@pytest.mark.parametrize("export", [as_csv, as_events])
@pytest.mark.parametrize(
    ("losses", "norms"),
    [
        pytest.param(GROWING, NOISE, id="a loss that grows"),
        pytest.param([*calm(30), NAN, NAN, NAN], NOISE, id="a loss of NaN"),
        pytest.param(calm(60), [*NOISE[:50], *[4e4] * 10], id="a gradient that explodes"),
        pytest.param([5.0, 80.0, 600.0, *[9e3] * 9], NOISE, id="from the first steps on"),
    ],
)
def test_an_exported_run_is_judged_as_it_was_live(tmp_path, export, losses, norms):
    records = [record(i, *both) for i, both in enumerate(zip(losses, norms, strict=False))]
    live = first_finding(build({}), records, first_step=0)
    found = stabexp.diagnose(export(records, tmp_path)).divergence
    assert live is not None
    assert (found.detector, found.detected, found.onset, found.pattern) == (
        live.detector,
        live.detected,
        live.onset,
        live.pattern,
    )


@pytest.mark.parametrize(
    ("losses", "norms"),
    [
        pytest.param(
            calm(60), [INF, INF, *NOISE[:20], NAN, *NOISE[:37]], id="updates a scaler skipped"
        ),
        pytest.param([*calm(30), NAN, *calm(30)], [1.0] * 61, id="one batch without a target"),
        pytest.param(calm(60), [*[1.0] * 59, 4e4], id="one large gradient at the end"),
        pytest.param(
            [3e-4 * i + 0.001 * math.sin(2.9 * i) for i in range(200)],
            NOISE,
            id="a policy's loss, which starts at 0 and creeps up",
        ),
    ],
)
def test_stays_silent_on(write, losses, norms):
    assert diagnosed(write, loss=losses, grad_norm=norms).status == "healthy"


def test_gradient_norms_written_more_rarely_than_losses_are_judged_where_they_are(write):
    norms = [(1.0 if i < 100 else 50.0 * i) if i % 5 == 0 else None for i in range(150)]
    found = diagnosed(write, loss=calm(150), grad_norm=norms)
    assert (found.divergence.detector, found.divergence.onset) == ("gradient_explosion", 100)


def test_one_large_norm_among_rare_ones_is_no_explosion(write):
    norms = [(5e3 if i == 100 else 1.0) if i % 5 == 0 else None for i in range(150)]
    assert diagnosed(write, loss=calm(150), grad_norm=norms).status == "healthy"


def test_a_log_that_ends_in_nan_diverged(write):
    found = diagnosed(write, loss=[*calm(30), NAN])
    assert (found.divergence.detector, found.divergence.onset) == ("non_finite", 30)
    assert "ends in 1 point(s)" in found.warnings[0]


def test_a_run_that_came_back_is_said_to_have(write):
    found = diagnosed(write, loss=[*calm(60), *[9.0] * 10, *calm(60, 1.0)])
    assert (found.status, found.recovered) == ("diverged", True)


def test_a_log_of_losses_alone_is_judged_by_what_there_is(write):
    found = diagnosed(write, loss=GROWING)
    assert found.divergence.detector == "divergence"
    assert [check.note for check in found.checks if not check.judged] == [
        "the log has no gradient norm"
    ]
    assert "no gradient norm and no learning rate" in " ".join(found.opinion.limits)


@pytest.mark.parametrize("points", [1, 3, 5])
def test_too_short_a_log_is_refused(write, points):
    with pytest.raises(ConfigError, match=f"too short: {points} point"):
        diagnosed(write, loss=calm(points))


def test_settings_the_user_knows_open_the_rules_that_ask_for_them(write):
    losses = [*calm(30), NAN, NAN, NAN]
    found = diagnosed(write, loss=losses, grad_norm=[1.0] * 33)
    assert found.opinion.cause == "implementation"
    assert "half precision would explain it as well" in found.opinion.reason
    known = stabexp.diagnose("log.jsonl", settings=["precision=fp16", "clip_norm=none"])
    assert known.opinion.cause == "precision"
    assert known.settings == {"precision": "fp16", "clip_norm": None}
    assert not any("precision" in limit for limit in known.opinion.limits)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("precison=fp16", "there are precision, clip_norm"),
        ("precision", "expected NAME=VALUE"),
        ("clip_norm=often", "expected a norm, or none"),
        ("batch_size=many", "expected samples per update"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(write, setting, message):
    with pytest.raises(ConfigError) as refused:
        stabexp.diagnose(write("log.jsonl", "{}"), settings=[setting])
    assert message in str(refused.value)
