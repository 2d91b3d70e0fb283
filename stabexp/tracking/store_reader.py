"""Reads the local MLflow store of runs whose directories are gone, without MLflow and unchanged.

A store is handed on more often than the directories beside it. What it has of a run is read from
its database, which is opened for reading only, and from the folder of artifacts next to it.
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stabexp.errors import RunNotFoundError, TrackingError
from stabexp.records import StepRecord
from stabexp.tracking.portable_store import ARTIFACTS, DATABASE, open_database

OUR_ID = "stabexp.run_id"
PARENT = "mlflow.parentRunId"
LOGARITHM = "_log10"
"""End of the name of a metric that is the base-10 logarithm of another."""
PLAIN = {"loss", "lr", "grad_norm", "update_ratio", "param_norm", "loss_scale", "clip_coefficient"}
"""Metrics that are fields of a step."""

Curves = Mapping[str, Mapping[int, float]]
"""Metric → step → value."""


class StoreReader:
    """One store: `mlflow.db` and `artifacts` in a folder."""

    def __init__(self, root: Path) -> None:
        """Read from the store in a folder.

        Raises:
            TrackingError: If there is no database, or it is not MLflow's.
        """
        self.root = root
        self.file = root / DATABASE
        with open_database(self.file) as database:
            self._tags: dict[str, dict[str, str]] = defaultdict(dict)
            rows = database.execute("select run_uuid, key, value from tags")
            for store_id, key, value in rows:
                self._tags[store_id][key] = value
            query = "select run_uuid, status, artifact_uri from runs where lifecycle_stage='active'"
            self._runs = {row[0]: (row[1], row[2]) for row in database.execute(query)}

    def find(self, run_id: str) -> str:
        """Return the store's id of a run, by that id, by ours, or by the beginning of ours.

        Raises:
            RunNotFoundError: If there is none, or more than one.
        """
        runs = {i: self._tags[i].get(OUR_ID, "") for i in self._runs if PARENT not in self._tags[i]}
        if run_id in runs:
            return run_id
        found = [i for i, ours in runs.items() if ours == run_id]
        found = found or [i for i, ours in runs.items() if run_id and ours.startswith(run_id)]
        if len(found) == 1:
            return str(found[0])
        names = ", ".join(sorted(filter(None, runs.values()))[:8])
        problem = f"{len(found)} runs begin so" if found else "not found"
        raise RunNotFoundError(f"run {run_id}: {problem} in {self.file}; it has {names or 'none'}")

    def tags(self, store_id: str) -> Mapping[str, str]:
        """Return the tags of a run."""
        return self._tags[store_id]

    def status(self, store_id: str) -> str:
        """Return how a run ended, as MLflow says it: "FINISHED"."""
        return str(self._runs[store_id][0])

    def children(self, store_id: str) -> list[str]:
        """Return the runs directly below one."""
        return [i for i in self._runs if self._tags[i].get(PARENT) == store_id]

    def curves(self, store_id: str) -> Curves:
        """Return the metrics of a run; of a step that was logged twice, the last value."""
        found: dict[str, dict[int, float]] = defaultdict(dict)
        query = "select key, step, value, is_nan from metrics where run_uuid = ? order by timestamp"
        with open_database(self.file) as database:
            for key, step, value, is_nan in database.execute(query, (store_id,)):
                inf = abs(value) >= sys.float_info.max
                known = math.copysign(math.inf, value) if inf else float(value)
                found[key][int(step)] = math.nan if is_nan else known
        return found

    def artifact(self, store_id: str, name: str) -> Path | None:
        """Return where an artifact of a run is, None where it has none of this name."""
        address = self._runs[store_id][1]
        places = [self.root / ARTIFACTS / address.partition(":")[2].strip("/")]
        if address.startswith("file:"):
            folder = Path(address.removeprefix("file://"))
            tail = folder.parts[-3:]  # experiment, run, "artifacts": the folder may have moved
            places = [folder, self.root.joinpath(ARTIFACTS, *tail)]
        return next((place / name for place in places if (place / name).is_file()), None)

    def read_json(self, store_id: str, name: str) -> Any:
        """Return the content of a JSON artifact, None where there is none.

        Raises:
            TrackingError: If it is damaged.
        """
        file = self.artifact(store_id, name)
        if file is None:
            return None
        try:
            return json.loads(file.read_text("utf-8"))
        except ValueError as error:
            raise TrackingError(f"{file}: damaged; restore it from a copy") from error


def records_of(curves: Curves) -> list[StepRecord]:
    """Return the steps that MLflow has, as far as it has them: finite numbers, not every step."""
    values = dict(curves)
    for name in PLAIN:
        logarithms = curves.get(f"{name}{LOGARITHM}")
        if name not in values and logarithms:
            values[name] = {step: 10.0**value for step, value in logarithms.items()}
    kept = [name for name in values if not name.endswith(LOGARITHM) and "verdict/" not in name]
    steps = sorted({step for name in kept for step in values[name]})
    found = []
    for step in steps:
        here = {name: values[name][step] for name in kept if step in values[name]}
        layers: dict[str, dict[str, float]] = {}
        metrics = {}
        for name, value in here.items():
            if name.startswith("layers/"):
                layer, _, figure = name.removeprefix("layers/").rpartition("/")
                layers.setdefault(layer, {})[figure] = value
            elif name not in PLAIN and name not in {"nonfinite", "samples_per_second"}:
                metrics[name] = value
        fields: dict[str, Any] = {name: here[name] for name in PLAIN & here.keys()}
        usual = dict.fromkeys(("time", "loss", "lr", "grad_norm"), math.nan)
        found.append(
            StepRecord(**{**usual, **fields}, step=step, layers=layers or None, metrics=metrics)
        )
    return found


def store_of(root: Path) -> StoreReader | None:
    """Return the store in a folder, None where there is none."""
    return StoreReader(root) if (root / DATABASE).exists() else None
