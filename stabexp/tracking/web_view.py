"""What people open in MLflow's pages: deep links, and saved views of all runs and of one bisect.

The format of saved views is MLflow's own and undocumented (read from MLflow 3.17); where another
version does not understand it, the "Views" menu has one entry less and nothing else changes.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

WORKFLOW = "workflowType=machine_learning"
"""Without it MLflow opens its pages for language model applications."""

CHANGED_PARAM = "changed"
DOSE_PARAM = "dose"
OUTCOME_PARAM = "outcome"
START_PARAM = "start_step"
SETTINGS_PREFIX = "settings."
"""Begins the names of the run's own settings; the compare page draws the first three parameters
that differ, in alphabetical order, so what a trial changed comes before them."""
SURVIVED_METRIC = "verdict/steps_survived"
END_LOSS_METRIC = "verdict/end_loss"
STATUS_TAG = "stabexp.status"
CAUSE_TAG = "stabexp.cause"
CONFIDENCE_TAG = "stabexp.confidence"
FINDING_TAG = "stabexp.finding"
"""One sentence that a run, a bisect and a trial each have: what came of it."""
REASON_TAG = "stabexp.reason"

COLOURS: Mapping[str, str] = {
    "cured": "#2e7d32",
    "stalled": "#b26a00",
    "delayed": "#c05600",
    "diverged": "#c62828",
    "inconclusive": "#757575",
    "healthy": "#2e7d32",
    "bisect": "#1565c0",
}
"""Colours of curves, bars and dots, by what came of a run or a trial."""

_NAME = "attributes.`Run Name`"
TRIAL_COLUMNS: Mapping[str, int] = {
    _NAME: 310,
    f"tags.`{REASON_TAG}`": 310,
    f"tags.`{FINDING_TAG}`": 400,
    f"params.`{OUTCOME_PARAM}`": 110,
    f"metrics.`{SURVIVED_METRIC}`": 180,
    f"metrics.`{END_LOSS_METRIC}`": 140,
    f"params.`{START_PARAM}`": 100,
}
"""Columns of a bisect's view and their widths in pixels."""

RUN_COLUMNS: Mapping[str, int] = {
    _NAME: 430,
    f"tags.`{CAUSE_TAG}`": 130,
    f"tags.`{CONFIDENCE_TAG}`": 150,
    f"tags.`{FINDING_TAG}`": 620,
    f"params.`{OUTCOME_PARAM}`": 110,
    f"metrics.`{SURVIVED_METRIC}`": 180,
}
"""Columns of the view over all runs, in which bisects and trials unfold below their run."""

_RUNS_KEY = "stabexpruns"

_CURVES = {
    "loss_log10": "Loss (log10, at most 6)",
    "grad_norm_log10": "Gradient norm (log10, at most 6)",
    "lr": "Learning rate",
}


EXPERIMENT_NOTE = """\
**Trainings watched by stabexp, and why some of them diverged.**

A *run* is one training. Below a run that diverged is its *bisect*; below the bisect are its
*trials*: the same training from a checkpoint, with one thing changed each. Green: it trained
through. Red: it diverged. Orange: it held out longer, or survived without learning. Blue: a bisect.

In the menu **Views**: all runs with their verdicts, and for each bisect its trials in the order in
which they were made, and in charts. The description of a run has its verdict; its artifacts have
the whole report under `report/verdict.html`.
"""
"""What an experiment says of itself, unless somebody has described it."""


def web_url(
    ui_base: str, experiment_id: str, run_id: str | None = None, *, artifact: str = ""
) -> str:
    """Return the address of an experiment's run list, a run's page, or one of its artifacts."""
    address = f"{ui_base.rstrip('/')}/#/experiments/{experiment_id}/runs"
    if run_id:
        address += f"/{run_id}"
    if run_id and artifact:
        address += f"/artifacts/{artifact}"
    return f"{address}?{WORKFLOW}"


def artifact_link(run_id: str, artifact: str) -> str:
    """Return a link from one MLflow page to an artifact; it works whatever the server's address.

    MLflow finds the run by its id alone, so the experiment may be left open.
    """
    return web_url("", "0", run_id, artifact=artifact).lstrip("/")


def run_link(run_id: str) -> str:
    """Return a link from one MLflow page to a run's."""
    return web_url("", "0", run_id).lstrip("/")


def image_source(run_id: str, artifact: str) -> str:
    """Return where a description finds a picture that is among a run's artifacts."""
    return f"get-artifact?{urlencode({'path': artifact})}&run_uuid={run_id}"


def compare_url(ui_base: str, experiment_id: str, run_ids: Sequence[str]) -> str:
    """Return the address of MLflow's page that sets runs side by side."""
    query = {"runs": json.dumps(list(run_ids)), "experiments": json.dumps([experiment_id])}
    return f"{ui_base.rstrip('/')}/#/compare-runs?{urlencode(query, quote_via=quote)}&{WORKFLOW}"


def saved_view_url(
    ui_base: str, experiment_id: str, bisect_id: str, *, charts: bool = False
) -> str:
    """Return the address of a bisect's saved view, as a table or as charts.

    Args:
        bisect_id: Its local id, which is known before any server is.
    """
    key = f"{bisect_id}-{'charts' if charts else 'trials'}"
    return view_url(ui_base, experiment_id, key, charts=charts)


def runs_view_url(ui_base: str, experiment_id: str) -> str:
    """Return the address of the view over all runs of an experiment."""
    return f"{web_url(ui_base, experiment_id)}&viewStateShareKey={_RUNS_KEY}"


def saved_view_tags(
    bisect_id: str, bisect_store_id: str, *, name: str, time_ms: int
) -> dict[str, str]:
    """Return the experiment tags that add a bisect's views to the "Views" menu.

    The trials in a table stand in the order in which they were made, as the bisect went; in charts
    the one that survived longest comes first.
    """
    only = f"tags.`mlflow.parentRunId` = '{bisect_store_id}'"
    charts = [_section("verdict", "What each change did"), _section("curves", "Curves")]
    return dict(
        _view_tag(
            f"stabexp-{bisect_id}-{kind}",
            name=f"{name}: {kind}",
            time_ms=time_ms,
            columns=TRIAL_COLUMNS,
            charts=_trial_charts(),
            sections=charts,
            state={"searchFilter": only, "orderByKey": order, "orderByAsc": kind == "trials"},
        )
        for kind, order in (
            ("trials", "tags.`mlflow.runName`"),
            ("charts", f"metrics.`{SURVIVED_METRIC}`"),
        )
    )


def runs_view_tag(*, time_ms: int) -> tuple[str, str]:
    """Return key and value of the experiment tag for the view over all runs."""
    return _view_tag(
        _RUNS_KEY,
        name="all runs and verdicts",
        time_ms=time_ms,
        columns=RUN_COLUMNS,
        charts=[_line(key, title) for key, title in _CURVES.items()],
        sections=[_section("curves", "Curves")],
        # MLflow shows what belongs to a run below it only in the order of their starts.
        state={"searchFilter": "", "orderByKey": "attributes.start_time"},
    )


def comparison_view_tag(
    key: str, *, name: str, only: str, params: Sequence[str], metric: str, time_ms: int
) -> tuple[str, str]:
    """Return the experiment tag for a view that compares some runs.

    Args:
        key: Names it in its address.
        only: Which runs, as a filter of MLflow's.
        params: Parameters in which they differ.
        metric: What came of them; the best, which is the lowest, comes first.
    """
    axes = {
        "displayName": "How it ended",
        "selectedParams": list(params),
        "selectedMetrics": [metric],
        "showAllRuns": True,
    }
    return _view_tag(
        f"stabexp-{key}",
        name=name,
        time_ms=time_ms,
        columns={
            _NAME: 340,
            **{f"params.`{param}`": 130 for param in params},
            f"metrics.`{metric}`": 150,
            f"tags.`{STATUS_TAG}`": 120,
            f"tags.`{FINDING_TAG}`": 560,
        },
        charts=[
            _line("loss_log10", _CURVES["loss_log10"]),
            _chart("ends", "PARALLEL", "curves") | axes,
            _line("grad_norm_log10", _CURVES["grad_norm_log10"]),
            _line("lr", _CURVES["lr"]),
        ],
        sections=[_section("curves", name)],
        state={"searchFilter": only, "orderByKey": f"metrics.`{metric}`", "orderByAsc": True},
    )


def view_url(ui_base: str, experiment_id: str, key: str, *, charts: bool = False) -> str:
    """Return the address of a view by its key."""
    mode = "&compareRunsMode=CHART" if charts else ""
    return f"{web_url(ui_base, experiment_id)}{mode}&viewStateShareKey=stabexp-{key}"


def _trial_charts() -> list[dict[str, Any]]:
    return [
        _chart("survived", "BAR", "verdict")
        | {"displayName": "Steps survived", "metricKey": SURVIVED_METRIC},
        _chart("doses", "PARALLEL", "verdict")
        | {
            "displayName": "What was changed, what came of it, steps survived",
            "selectedParams": [CHANGED_PARAM, OUTCOME_PARAM],
            "selectedMetrics": [SURVIVED_METRIC],
            "showAllRuns": True,
        },
        *(_line(key, title) for key, title in _CURVES.items()),
    ]


def _view_tag(
    key: str,
    *,
    name: str,
    time_ms: int,
    columns: Mapping[str, int],
    charts: Sequence[Mapping[str, Any]],
    sections: Sequence[Mapping[str, Any]],
    state: Mapping[str, Any],
) -> tuple[str, str]:
    full: dict[str, Any] = {
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": [column for column in columns if column != _NAME],
        # MLflow heeds the widths of columns in this list only.
        "columnOrder": list(columns),
        "columnWidths": dict(columns),
        "runsHiddenMode": "SHOW_ALL",
        "compareRunCharts": list(charts),
        "compareRunSections": list(sections),
        "viewMaximized": False,
        "runListHidden": False,
        "isAccordionReordered": True,
        "useGroupedValuesInCharts": True,
        "hideEmptyCharts": True,
        "groupBy": None,
        "groupsExpanded": {},
        "globalLineChartConfig": {
            "xAxisKey": "step",
            "lineSmoothness": 0,
            "selectedXAxisMetricKey": "",
        },
        **state,
    }
    packed = base64.b64encode(zlib.compress(json.dumps(full).encode())).decode()
    value = {
        "name": name,
        "createdAt": time_ms,
        "updatedAt": time_ms,
        "state": f"deflate;{packed}",
    }
    return f"mlflow.sharedViewState.{key}", json.dumps(value)


def _section(uuid: str, name: str) -> dict[str, Any]:
    return {
        "uuid": f"stabexp-{uuid}",
        "name": name,
        "display": True,
        "isReordered": True,
        "deleted": False,
        "isGenerated": False,
        "columns": 2,
    }


def _chart(uuid: str, kind: str, section: str) -> dict[str, Any]:
    return {
        "uuid": f"stabexp-chart-{uuid}",
        "type": kind,
        "runsCountToCompare": 100,
        "metricSectionId": f"stabexp-{section}",
        "deleted": False,
        "isGenerated": False,
    }


def _line(key: str, title: str) -> dict[str, Any]:
    return _chart(key, "LINE", "curves") | {
        "displayName": title,
        "metricKey": key,
        "selectedMetricKeys": [key],
        "lineSmoothness": 0,
        "xAxisScaleType": "linear",
        "scaleType": "linear",
        "range": {},
        "xAxisKey": "step",
        "selectedXAxisMetricKey": "",
        "yAxisKey": "metric",
        "yAxisExpressions": [],
        # The divergence is what is looked for.
        "ignoreOutliers": False,
        "useGlobalXaxisKey": True,
        "useGlobalLineSmoothing": True,
    }
