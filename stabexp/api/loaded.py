"""Everything recorded of a run, one line each: tables, figures, the report.

Nothing is read before it is asked for, and nothing twice.
"""

from __future__ import annotations

from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stabexp import experiment as experiments
from stabexp.api.runs import experiment_of
from stabexp.errors import StabexpError
from stabexp.records import Divergence, SampleView, StepRecord, TrialRecord, Verdict
from stabexp.tracking import RunDirectory

if TYPE_CHECKING:
    import pandas as pd

    from stabexp.reporting.notebook import Drawings, Shown
    from stabexp.reporting.report import Report
    from stabexp.reporting.summary import Summary
    from stabexp.tracking.step_columns import StepColumns

PLACES = (
    ("steps", "one row per step"),
    ("layers", "one row per step and layer"),
    ("sample_ids", "which step used which sample"),
    ("trials", "one row per trial of the latest bisect"),
    ("trial_steps", "the steps of all trials"),
    ("bisects", "one row per bisect"),
    ("events", "alarms and what stabilisers did"),
    ("figures", "pictures by name"),
    ("verdict", "why it diverged"),
    ("report()", "the whole report"),
)
"""What a run in a notebook has, for its summary."""

LAYERS = ("gradient_flow", "gradient_heatmap")
"""Figures of layers that there are wherever steps measured them."""


class Loaded:
    """Everything recorded of a run. A notebook shows it as a summary."""

    def __init__(self, directory: RunDirectory) -> None:
        """Use `load`."""
        self._directory = directory

    @property
    def run_id(self) -> str:
        """The local id."""
        return self._directory.run_id

    @property
    def directory(self) -> Path:
        """Where it is recorded."""
        return self._directory.path

    @property
    def status(self) -> str:
        """ "finished", "diverged", "failed", "killed" or "running"."""
        return "diverged" if self.divergence is not None else self._directory.status().lower()

    @cached_property
    def experiment(self) -> experiments.Experiment:
        """What was trained."""
        return experiment_of(self._directory)[0]

    @cached_property
    def divergence(self) -> Divergence | None:
        """What a detector found, None when it did not diverge."""
        return self._directory.divergence()

    @cached_property
    def records(self) -> tuple[StepRecord, ...]:
        """The steps as records; tables of them are much faster for long runs."""
        return tuple(self._directory.read_steps())

    @cached_property
    def trial_records(self) -> tuple[TrialRecord, ...]:
        """Trials of the latest bisect as records, in the order in which they finished."""
        return self._read_trials(self._bisect)

    @cached_property
    def verdict(self) -> Verdict | None:
        """Why it diverged, by the latest bisect; None where there is no verdict yet."""
        return _verdict_of(self._bisect)

    @cached_property
    def samples(self) -> tuple[SampleView, ...]:
        """What the samples at fault hold, and ordinary ones; empty where none was looked at."""
        from stabexp.bisection.shown_samples import read_views

        return read_views(self._bisect) if self._bisect is not None else ()

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row per step: loss, lr, grad_norm and so on, and "metrics/<name>"."""
        from stabexp.tracking.frames import steps_frame

        return steps_frame(self._columns)

    @cached_property
    def layers(self) -> pd.DataFrame:
        """One row per step and layer that was measured: step, layer, and a column per figure."""
        from stabexp.tracking.frames import layers_frame
        from stabexp.tracking.step_columns import read_columns

        return layers_frame(read_columns(self.directory / "steps.jsonl"))

    @cached_property
    def sample_ids(self) -> pd.DataFrame:
        """One row per use of a sample: step, place in the step, sample."""
        from stabexp.tracking.frames import sample_ids_frame

        return sample_ids_frame(self._columns)

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row per trial of the latest bisect."""
        from stabexp.tracking.frames import trials_frame

        return trials_frame(self.trial_records)

    @cached_property
    def trial_steps(self) -> pd.DataFrame:
        """The steps of all trials of the latest bisect, with trial, name, role and outcome."""
        from stabexp.tracking.frames import trial_steps_frame
        from stabexp.tracking.step_columns import read_columns

        folder = None if self._bisect is None else self._bisect.path / "trials"
        return trial_steps_frame(
            (record, read_columns(folder / record.directory / "steps.jsonl", layers=False))
            for record in self.trial_records
            if folder is not None and record.directory
        )

    @cached_property
    def events(self) -> pd.DataFrame:
        """Alarms, warnings and what stabilisers did, one row each."""
        from stabexp.tracking.frames import events_frame

        return events_frame(self._directory.read_events())

    @cached_property
    def bisects(self) -> pd.DataFrame:
        """One row per bisect, the latest last."""
        import pandas

        rows = []
        for number, child in enumerate(self._bisects, start=1):
            verdict = _verdict_of(child)
            rows.append(
                {
                    "bisect": number,
                    "id": child.run_id,
                    "created": pandas.Timestamp(child.created, unit="s", tz="UTC"),
                    "status": child.status().lower(),
                    "cause": verdict.cause if verdict else None,
                    "confidence": verdict.confidence if verdict else None,
                    "trials": len(self._read_trials(child)),
                    "replayed_steps": verdict.replayed_steps if verdict else None,
                    "seconds": verdict.seconds if verdict else None,
                    "summary": verdict.summary if verdict else None,
                }
            )
        names = ("bisect", "id", "created", "status", "cause", "confidence", "trials")
        columns = [*names, "replayed_steps", "seconds", "summary"]
        return pandas.DataFrame(rows, columns=columns).astype(
            {"replayed_steps": "Int64", "confidence": "float64", "seconds": "float64"}
        )

    @cached_property
    def figures(self) -> Drawings:
        """Pictures by name, drawn when they are asked for: `run.figures["loss"]`."""
        from stabexp.reporting.notebook import CURVES, NAMES, Drawings, report_figures

        makers: dict[str, Any] = {}
        for field in CURVES:
            if self.steps[field].notna().any():
                makers[NAMES.get(field, field)] = partial(self._curve, field)
        makers |= {name: partial(self._layer_drawing, name) for name in self._layer_names}
        hints = []
        if not self._layer_names:
            hints.append("those of layers need `monitors: {layers: {every: 10}}`")
        if self.verdict is not None:
            makers |= report_figures(self.trial_records, lambda: self._report)
        else:
            hints.append("those of trials need a bisect")
        return Drawings(makers, hint="; ".join(hints))

    def report(self) -> Shown:
        """Return the report on the verdict, which a notebook shows in place.

        Raises:
            StabexpError: If there is no verdict yet.
        """
        from stabexp.reporting import verdict_page
        from stabexp.reporting.notebook import Shown

        return Shown(verdict_page(self._report))

    def summary(self) -> Summary:
        """Return the run in a few lines."""
        from stabexp.reporting.summary import Summary

        losses = self.steps["loss"]
        return Summary(
            run_id=self.run_id,
            status=self.status,
            steps=len(losses),
            last_loss=float(losses.iloc[-1]) if len(losses) else float("nan"),
            divergence=self.divergence,
            verdict=self.verdict,
            places=PLACES,
        )

    def _repr_html_(self) -> str:
        return self.summary().html()

    def _repr_markdown_(self) -> str:
        return self.summary().markdown()

    def __repr__(self) -> str:
        return self.summary().text()

    @cached_property
    def _bisects(self) -> list[RunDirectory]:
        return [child for child in self._directory.children() if child.kind == "bisect"]

    @cached_property
    def _bisect(self) -> RunDirectory | None:
        return self._bisects[-1] if self._bisects else None

    @cached_property
    def _columns(self) -> StepColumns:
        from stabexp.tracking.step_columns import read_columns

        return read_columns(self.directory / "steps.jsonl", layers=False)

    @cached_property
    def _report(self) -> Report:
        from stabexp.reporting.report import gather

        if self.verdict is None or self._bisect is None:
            why = "it did not diverge"
            if self.divergence is not None:
                why = f"find out why it diverged: stabexp bisect {self.run_id}"
            raise StabexpError(f"run {self.run_id}: there is no verdict to report on; {why}")
        return gather(
            self._directory,
            self._bisect,
            verdict=self.verdict,
            trials=self.trial_records,
            steps=self.records,
        )

    @cached_property
    def _layer_drawings(self) -> dict[str, str]:
        from stabexp.api.drawing import drawn_layers

        return drawn_layers(self._directory)

    def _layer_drawing(self, name: str) -> str:
        return self._layer_drawings[f"{name}.svg"]

    @cached_property
    def _layer_names(self) -> list[str]:
        """The names of the figures of layers, without reading the layers."""
        from stabexp.api.watched import watched_replay

        file = self.directory / "steps.jsonl"
        if not file.exists():
            return []
        with open(file, "rb") as lines:
            first = next((line for line in lines if b',"layers":{' in line), b"")
        found = [*LAYERS] if first else []
        if first and b'"weight_norm":' in first:
            found.append("weight_heatmap")
        if first and self.divergence is not None and watched_replay(self._directory) is not None:
            found.append("onset_heatmap")
        return found

    def _curve(self, field: str) -> str:
        from stabexp.reporting.notebook import curve_figure

        return curve_figure(
            self.steps["step"].tolist(),
            self.steps[field].tolist(),
            field=field,
            name=self.run_id,
            divergence=self.divergence,
        )

    def _read_trials(self, bisect: RunDirectory | None) -> tuple[TrialRecord, ...]:
        from stabexp.bisection.trials import read_trials

        return read_trials(bisect) if bisect is not None else ()


def _verdict_of(bisect: RunDirectory | None) -> Verdict | None:
    if bisect is None or not (bisect.path / "verdict.json").exists():
        return None
    return bisect.read_record(Verdict, "verdict.json")
