"""What people open in MLflow's pages: deep links, and a saved view that compares a bisect's trials.

The format of saved views is MLflow's own and undocumented (read from MLflow 3.17); where another
version does not understand it, the "Views" menu has one entry less and nothing else changes.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any

WORKFLOW = "workflowType=machine_learning"
"""Without it MLflow opens its pages for language model applications."""

VARIABLE_PARAM = "variable"
DOSE_PARAM = "dose"
FROM_STEP_PARAM = "from_step"
OUTCOME_PARAM = "outcome"
SURVIVED_METRIC = "verdict/steps_survived"
END_LOSS_METRIC = "verdict/end_loss"
STATUS_TAG = "stabexp.status"
CAUSE_TAG = "stabexp.cause"


_NAME = "attributes.`Run Name`"
TRIAL_COLUMNS: Mapping[str, int] = {
    _NAME: 320,
    f"params.`{VARIABLE_PARAM}`": 130,
    f"params.`{DOSE_PARAM}`": 90,
    f"params.`{FROM_STEP_PARAM}`": 100,
    f"params.`{OUTCOME_PARAM}`": 110,
    f"metrics.`{SURVIVED_METRIC}`": 180,
    f"metrics.`{END_LOSS_METRIC}`": 140,
}
"""Columns of a bisect's view and their widths in pixels."""

RUN_COLUMNS: Mapping[str, int] = {
    _NAME: 360,
    f"tags.`{STATUS_TAG}`": 120,
    f"tags.`{CAUSE_TAG}`": 130,
    **{key: width for key, width in TRIAL_COLUMNS.items() if key != _NAME},
}
"""Columns of the view over all runs, in which bisects and trials unfold below their run."""


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


def saved_view_url(
    ui_base: str, experiment_id: str, bisect_store_id: str, *, charts: bool = False
) -> str:
    """Return the address of a bisect's saved view, as a table or as charts."""
    mode = "&compareRunsMode=CHART" if charts else ""
    key = _key(bisect_store_id)
    return f"{web_url(ui_base, experiment_id)}{mode}&viewStateShareKey={key}"


def runs_view_url(ui_base: str, experiment_id: str) -> str:
    """Return the address of the view over all runs of an experiment."""
    return f"{web_url(ui_base, experiment_id)}&viewStateShareKey={_RUNS_KEY}"


def saved_view_tag(bisect_store_id: str, *, name: str, time_ms: int) -> tuple[str, str]:
    """Return key and value of the experiment tag that adds a bisect's view to the "Views" menu."""
    return _view_tag(
        _key(bisect_store_id),
        name=name,
        time_ms=time_ms,
        columns=TRIAL_COLUMNS,
        state={
            "searchFilter": f"tags.`mlflow.parentRunId` = '{bisect_store_id}'",
            "orderByKey": f"metrics.`{SURVIVED_METRIC}`",
        },
    )


def runs_view_tag(*, time_ms: int) -> tuple[str, str]:
    """Return key and value of the experiment tag for the view over all runs."""
    return _view_tag(
        _RUNS_KEY,
        name="runs and verdicts",
        time_ms=time_ms,
        columns=RUN_COLUMNS,
        # MLflow shows what belongs to a run below it only in the order of their starts.
        state={"searchFilter": "", "orderByKey": "attributes.start_time"},
    )


def _view_tag(
    key: str, *, name: str, time_ms: int, columns: Mapping[str, int], state: Mapping[str, Any]
) -> tuple[str, str]:
    charts: list[dict[str, Any]] = [
        _chart("survived", "BAR", "verdict") | {"metricKey": SURVIVED_METRIC},
        _chart("doses", "PARALLEL", "verdict")
        | {
            "selectedParams": [VARIABLE_PARAM, OUTCOME_PARAM],
            "selectedMetrics": [SURVIVED_METRIC],
            "showAllRuns": True,
        },
        *(_line(curve) for curve in ("loss_log10", "grad_norm_log10", "lr")),
    ]
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
        "compareRunCharts": charts,
        "compareRunSections": [_section("verdict", "Verdict"), _section("curves", "Curves")],
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


_RUNS_KEY = "stabexpruns"


def _key(bisect_store_id: str) -> str:
    return f"stabexp{bisect_store_id[:8]}"


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


def _line(key: str) -> dict[str, Any]:
    return _chart(key, "LINE", "curves") | {
        "displayName": key,
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
        "ignoreOutliers": True,
        "useGlobalXaxisKey": True,
        "useGlobalLineSmoothing": True,
    }
