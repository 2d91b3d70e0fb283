"""Every alert fires when it should and is silent when not, as Prometheus itself evaluates it."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
import yaml

from stabexp.boards import METRICS, RULES, packaged
from stabexp.cli import app

ALERTS = {
    rule["alert"]: rule
    for group in yaml.safe_load(packaged(RULES))["groups"]
    for rule in group["rules"]
}
SERIES = {metric.series for metric in METRICS.values()}
RUNNING = {'stabexp_run_status{run="r", status="running"}': "1x200"}
OVER = {'stabexp_run_status{run="r", status="running"}': "0x200"}


def of(name, labels=""):
    more = f", {labels}" if labels else ""
    return f'stabexp_{name}{{run="r"{more}}}'


USUAL_NORM = {of("gradient_norm_median"): "1x200"}
RISING = {of("loss_slope"): "0.5x200", of("loss_median"): "3x200"}
STEPPING = {of("latest_step"): "5x200", of("step_duration_seconds"): "2x200"}

CASES = [
    # alert, minutes, series in steps of a minute, whether it fires
    ("Diverged", 5, {of("diverged"): "0 0 0 1x100"}, True),
    ("Diverged", 5, {of("diverged"): "0x100"}, False),
    ("NotFinite", 5, {of("loss"): "1 1 NaN NaN NaN NaN NaN"}, True),
    ("NotFinite", 5, {of("loss"): "1 1 Inf Inf Inf Inf Inf"}, True),
    ("NotFinite", 5, {of("nonfinite_parameters"): "0 2x100"}, True),
    ("NotFinite", 5, {of("loss"): "9e9x100", of("nonfinite_parameters"): "0x100"}, False),
    ("NotFinite", 5, {of("nonfinite_gradients"): "3x100", of("loss"): "1x100"}, False),
    ("RunStopped", 5, {of("run_status", 'status="killed"'): "1x100"}, True),
    ("RunStopped", 5, {of("run_status", 'status="failed"'): "1x100"}, True),
    ("RunStopped", 5, {of("run_status", 'status="finished"'): "1x100"}, False),
    ("RunStopped", 5, {of("run_status", 'status="diverged"'): "1x100"}, False),
    ("NoStep", 20, {of("latest_step_timestamp_seconds"): "60x200", **STEPPING, **RUNNING}, True),
    ("NoStep", 9, {of("latest_step_timestamp_seconds"): "60x200", **STEPPING, **RUNNING}, False),
    ("NoStep", 20, {of("latest_step_timestamp_seconds"): "0+60x200", **STEPPING, **RUNNING}, False),
    ("NoStep", 20, {of("latest_step_timestamp_seconds"): "60x200", **STEPPING, **OVER}, False),
    (
        "NoStep",
        20,
        {
            of("latest_step_timestamp_seconds"): "60x200",
            of("step_duration_seconds"): "300x200",
            of("latest_step"): "5x200",
            **RUNNING,
        },
        False,
    ),
    ("NoStep", 40, {of("run_created_timestamp_seconds"): "0x200", **RUNNING}, True),
    ("NoStep", 20, {of("run_created_timestamp_seconds"): "0x200", **RUNNING}, False),
    (
        "GradientNormHigh",
        70,
        {of("gradient_norm_max"): "1x65 20x100", **USUAL_NORM, **RUNNING},
        True,
    ),
    ("GradientNormHigh", 70, {of("gradient_norm_max"): "9x200", **USUAL_NORM, **RUNNING}, False),
    ("GradientNormHigh", 70, {of("gradient_norm_max"): "20x200", **USUAL_NORM, **OVER}, False),
    (
        "LossAccelerates",
        10,
        {of("loss_second_derivative"): "0.1x200", **RISING, **RUNNING},
        True,
    ),
    (
        "LossAccelerates",
        10,
        {of("loss_second_derivative"): "-0.1x200", **RISING, **RUNNING},
        False,
    ),
    (
        "LossAccelerates",
        10,
        {
            of("loss_second_derivative"): "0.1x200",
            of("loss_slope"): "0.001x200",
            of("loss_median"): "3x200",
            **RUNNING,
        },
        False,
    ),
    ("UpdatesTooLarge", 10, {of("layers_update_ratio_max"): "0.2x200", **RUNNING}, True),
    ("UpdatesTooLarge", 10, {of("update_ratio"): "0.2x200", **RUNNING}, True),
    ("UpdatesTooLarge", 10, {of("layers_update_ratio_max"): "0.01x200", **RUNNING}, False),
    ("UpdatesTooSmall", 30, {of("layers_update_ratio_max"): "1e-5x200", **RUNNING}, True),
    ("UpdatesTooSmall", 10, {of("layers_update_ratio_max"): "1e-5x200", **RUNNING}, False),
    ("UpdatesTooSmall", 30, {of("layers_update_ratio_max"): "1e-3x200", **RUNNING}, False),
    (
        "ActivationsDead",
        10,
        {of("layers_activation_sparsity_ratio_max"): "0.99x200", **RUNNING},
        True,
    ),
    (
        "ActivationsDead",
        10,
        {of("layers_activation_sparsity_ratio_max"): "0.6x200", **RUNNING},
        False,
    ),
    (
        "UpdatesSkipped",
        30,
        {of("skipped_updates_total"): "0+30x200", of("steps_total"): "0+60x200"},
        True,
    ),
    (
        "UpdatesSkipped",
        30,
        {of("skipped_updates_total"): "0+6x200", of("steps_total"): "0+60x200"},
        False,
    ),
    ("Alarm", 5, {of("alarms_total", 'alarm="not finite"'): "_ _ _ 1x100"}, True),
    ("Alarm", 32, {of("alarms_total", 'alarm="not finite"'): "1x29 2x100"}, True),
    ("Alarm", 32, {of("alarms_total", 'alarm="not finite"'): "1x100"}, False),
    ("CrashForecast", 5, {of("warnings_total", 'kind="rate_ramp"'): "_ _ _ 1x100"}, True),
    ("CrashForecast", 32, {of("warnings_total", 'kind="rate_ramp"'): "1x100"}, False),
    (
        "VerdictReady",
        5,
        {of("verdict_info", 'cause="data"'): "1x200", of("verdict_timestamp_seconds"): "60x200"},
        True,
    ),
    (
        "VerdictReady",
        90,
        {of("verdict_info", 'cause="data"'): "1x200", of("verdict_timestamp_seconds"): "60x200"},
        False,
    ),
    ("BisectStopped", 5, {of("bisect_status", 'status="killed"'): "1x100"}, True),
    ("BisectStopped", 5, {of("bisect_status", 'status="running"'): "1x100"}, False),
    ("RecoveryGaveUp", 5, {of("recovery_status", 'status="gave_up"'): "1x100"}, True),
    ("RecoveryGaveUp", 5, {of("recovery_status", 'status="recovered"'): "1x100"}, False),
    ("RunUnreadable", 10, {of("run_readable"): "0x100"}, True),
    ("RunUnreadable", 10, {of("run_readable"): "1x100"}, False),
    ("EndpointGone", 10, {of("loss"): "1x100"}, True),
    ("EndpointGone", 10, {'stabexp_exporter_info{version="1"}': "1x100"}, False),
]


def test_promtool_has_nothing_to_say_against_the_rules(promtool, tmp_path):
    checked = promtool("check", "rules", files("stabexp.boards") / RULES)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("alert", "minutes", "series", "fires"),
    [
        pytest.param(*case, id=f"{case[0]}-{'fires' if case[3] else 'silent'}-{number}")
        for number, case in enumerate(CASES)
    ],
)
def test_an_alert(promtool, tmp_path, alert, minutes, series, fires):
    expr = f'count(ALERTS{{alertname="Stabexp{alert}", alertstate="firing"}})'
    test = {
        "rule_files": [str(files("stabexp.boards") / RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": k, "values": v} for k, v in series.items()],
                "promql_expr_test": [
                    {
                        "expr": expr,
                        "eval_time": f"{minutes}m",
                        "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
                    }
                ],
            }
        ],
    }
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump(test))
    done = promtool("test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_seen_to_fire_and_to_be_silent():
    for fires in (True, False):
        assert {f"Stabexp{case[0]}" for case in CASES if case[3] is fires} == set(ALERTS)


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_says_what_it_means_and_what_to_do(alert):
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(rule["annotations"]) == {"summary", "description", "action"}
    assert set(re.findall(r"\bstabexp_\w+", rule["expr"])) <= SERIES
    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    named = re.findall(r"\bstabexp ([a-z][a-z-]*)", rule["annotations"]["action"])
    assert named
    assert set(named) <= known
