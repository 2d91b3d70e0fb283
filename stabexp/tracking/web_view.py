"""What people open in MLflow's pages: deep links, and a saved view that compares a bisect's trials.

The format of saved views is MLflow's own and undocumented (read from MLflow 3.17); where another
version does not understand it, the "Views" menu has one entry less and nothing else changes.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from typing import Any

WORKFLOW = "workflowType=machine_learning"
"""Without it MLflow opens its pages for language model applications."""

VARIABLE_PARAM = "variable"
DOSE_PARAM = "dose"
FROM_STEP_PARAM = "from_step"
OUTCOME_PARAM = "outcome"
SURVIVED_METRIC = "verdict/steps_survived"
END_LOSS_METRIC = "verdict/end_loss"

COLUMNS = (
    f"params.`{VARIABLE_PARAM}`",
    f"params.`{DOSE_PARAM}`",
    f"params.`{FROM_STEP_PARAM}`",
    f"params.`{OUTCOME_PARAM}`",
    f"metrics.`{SURVIVED_METRIC}`",
    f"metrics.`{END_LOSS_METRIC}`",
)
"""The columns of the saved view."""

_WIDTHS = {"attributes.`Run Name`": 320} | dict(
    zip(COLUMNS, (130, 90, 100, 110, 180, 140), strict=True)
)
"""Widths in pixels, in the order of the columns; MLflow wants both to heed either."""


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


def saved_view_tag(
    bisect_store_id: str,
    *,
    name: str,
    time_ms: int,
    curves: Sequence[str] = ("loss_log10", "grad_norm_log10", "lr"),
) -> tuple[str, str]:
    """Return key and value of the experiment tag that adds the view to the "Views" menu."""
    sections = [_section("verdict", "Verdict"), _section("curves", "Curves")]
    charts: list[dict[str, Any]] = [
        _chart("survived", "BAR", "verdict")
        | {"metricKey": SURVIVED_METRIC, "displayName": "steps survived after the checkpoint"},
        _chart("doses", "PARALLEL", "verdict")
        | {
            "displayName": "what was changed → how long it survived",
            "selectedParams": [VARIABLE_PARAM, OUTCOME_PARAM],
            "selectedMetrics": [SURVIVED_METRIC],
            "showAllRuns": True,
        },
        *(_line(key) for key in curves),
    ]
    state = {
        "searchFilter": f"tags.`mlflow.parentRunId` = '{bisect_store_id}'",
        "orderByKey": f"metrics.`{SURVIVED_METRIC}`",
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": list(COLUMNS),
        "columnOrder": list(_WIDTHS),
        "columnWidths": _WIDTHS,
        "runsHiddenMode": "SHOW_ALL",
        "compareRunCharts": charts,
        "compareRunSections": sections,
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
    }
    packed = base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
    value = {
        "name": name,
        "createdAt": time_ms,
        "updatedAt": time_ms,
        "state": f"deflate;{packed}",
    }
    return f"mlflow.sharedViewState.{_key(bisect_store_id)}", json.dumps(value)


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
        "ignoreOutliers": False,
        "useGlobalXaxisKey": True,
        "useGlobalLineSmoothing": True,
    }
