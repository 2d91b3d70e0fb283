"""A run of which only the MLflow store is left: what it has, in the same form."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pydantic

from stabexp import experiment as experiments
from stabexp.api.loaded import Loaded
from stabexp.errors import StabexpError, TrackingError
from stabexp.records import (
    Divergence,
    SampleView,
    StepRecord,
    TrialRecord,
    Verdict,
    from_json,
)
from stabexp.tracking.store_reader import OUR_ID, StoreReader, records_of

if TYPE_CHECKING:
    import pandas as pd

    from stabexp.reporting.report import Report
    from stabexp.tracking.step_columns import StepColumns

REPORT = "report/verdict.json"

_R = TypeVar("_R")


class LoadedFromStore(Loaded):
    """What an MLflow store has of a run: its finite numbers, not every step, trials, verdict."""

    def __init__(self, store: StoreReader, store_id: str) -> None:
        """Use `load`."""
        self._store, self._id = store, store_id

    @property
    def run_id(self) -> str:
        return self._store.tags(self._id).get(OUR_ID) or self._id

    @property
    def directory(self) -> Path:
        """The store's folder; the run's own directory is not there."""
        return self._store.root

    @property
    def status(self) -> str:
        ended = self._store.status(self._id).lower()
        return f"{'diverged' if self.divergence is not None else ended} (from MLflow alone)"

    @cached_property
    def experiment(self) -> experiments.Experiment:
        file = self._store.artifact(self._id, "experiment.yaml")
        if file is None:
            raise self._lacks("its experiment file")
        return experiments.given(file, (), {}).experiment

    @cached_property
    def divergence(self) -> Divergence | None:
        found = self._store.read_json(self._id, "divergence.json")
        return self._record(Divergence, found) if found else None

    @cached_property
    def records(self) -> tuple[StepRecord, ...]:
        return tuple(records_of(self._store.curves(self._id)))

    @cached_property
    def trial_records(self) -> tuple[TrialRecord, ...]:
        told = self._store.read_json(self._id, REPORT) or {}
        found = [self._record(TrialRecord, item) for item in told.get("trials", ())]
        return tuple(sorted(found, key=lambda record: record.number))

    @cached_property
    def verdict(self) -> Verdict | None:
        told = self._store.read_json(self._id, REPORT) or {}
        return self._record(Verdict, told["verdict"]) if told.get("verdict") else None

    @cached_property
    def samples(self) -> tuple[SampleView, ...]:
        for bisect in reversed(self._store.children(self._id)):
            if kept := self._store.read_json(bisect, "samples.json"):
                return tuple(self._record(SampleView, item) for item in kept["samples"])
        return ()

    @cached_property
    def layers(self) -> pd.DataFrame:
        from stabexp.tracking.frames import layers_frame

        return layers_frame(self._columns)

    @cached_property
    def sample_ids(self) -> pd.DataFrame:
        raise self._lacks("which step used which sample")

    @cached_property
    def trial_steps(self) -> pd.DataFrame:
        from stabexp.tracking.frames import trial_steps_frame
        from stabexp.tracking.step_columns import columns_of

        steps = self._steps_of_trials
        return trial_steps_frame(
            (record, columns_of(steps[record.spec.key]))
            for record in self.trial_records
            if record.spec.key in steps
        )

    @cached_property
    def events(self) -> pd.DataFrame:
        raise self._lacks("its events")

    @cached_property
    def bisects(self) -> pd.DataFrame:
        raise self._lacks("its bisects one by one; `.trials` and `.verdict` are of the latest")

    @cached_property
    def _columns(self) -> StepColumns:
        from stabexp.tracking.step_columns import columns_of

        return columns_of(self.records)

    @cached_property
    def _layer_names(self) -> list[str]:
        return ["gradient_flow", "gradient_heatmap"] if any(r.layers for r in self.records) else []

    @cached_property
    def _layer_drawings(self) -> dict[str, str]:
        from stabexp.reporting.layer_figures import layer_figures

        return layer_figures(self.records, name=self.run_id, divergence=self.divergence)

    @cached_property
    def _steps_of_trials(self) -> dict[str, list[StepRecord]]:
        """Trial key → its steps, by the last part of the trial's id."""
        found = {}
        for bisect in self._store.children(self._id):
            for trial in self._store.children(bisect):
                ours = self._store.tags(trial).get(OUR_ID, "")
                key = ours.rpartition(".")[2].partition("-")[0]
                found[key] = records_of(self._store.curves(trial))
        return found

    @cached_property
    def _report(self) -> Report:
        from stabexp.reporting.report import Report

        if self.verdict is None:
            raise self._lacks("a verdict on it")
        text = self._store.artifact(self._id, "experiment.yaml")
        scans = {r.spec.key for r in self.trial_records if r.spec.role == "scan"}
        return Report(
            verdict=self.verdict,
            trials=self.trial_records,
            steps=self.records,
            trial_steps={k: v for k, v in self._steps_of_trials.items() if k not in scans},
            samples=self.samples,
            experiment=text.read_text("utf-8") if text else "",
            fingerprint=self._store.read_json(self._id, "fingerprint.json") or {},
        )

    def _record(self, kind: type[_R], values: Mapping[str, Any]) -> _R:
        """Return a record that may be of an older version: what it has of no use now is left out.

        Raises:
            TrackingError: If it is no such record.
        """
        try:
            return from_json(kind, values)
        except pydantic.ValidationError as error:
            known = copy.deepcopy(dict(values))
            for problem in error.errors():
                *path, last = problem["loc"]
                place: Any = known
                for step in path:
                    place = place[step]
                with suppress(LookupError, TypeError):
                    del place[last]
        try:
            return from_json(kind, known)
        except pydantic.ValidationError as error:
            raise TrackingError(
                f"run {self.run_id}: its {kind.__name__} in MLflow is of a version that cannot be "
                "read any more; load it with the version that recorded it"
            ) from error

    def _lacks(self, what: str) -> StabexpError:
        return StabexpError(
            f"run {self.run_id}: MLflow does not have {what}; load it where it was recorded, with "
            "root= the folder that holds its runs/"
        )
