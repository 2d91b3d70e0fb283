"""All that a report on a verdict is made of, gathered once for every form it is told in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stabexp.bisection.shown_samples import read_views
from stabexp.records import SampleView, StepRecord, TrialRecord, Verdict
from stabexp.tracking.run_directory import RunDirectory
from stabexp.tracking.upload_state import read_upload
from stabexp.tracking.web_view import web_url


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A verdict and what it rests on; records only, so it can be told anywhere."""

    verdict: Verdict
    trials: Sequence[TrialRecord]
    steps: Sequence[StepRecord] = ()
    """The diverged run's steps."""
    trial_steps: Mapping[str, Sequence[StepRecord]] = field(default_factory=dict)
    """Trial key → its steps; trials without any get no curve."""
    near: Sequence[StepRecord] = ()
    """Steps around the onset at which every layer was measured, from an exact replay."""
    samples: Sequence[SampleView] = ()
    """The samples at fault as they are, and ordinary ones to compare with."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Trial key → address of the trial's own run; other than http(s) or relative ones are left
    out."""
    experiment: str = ""
    """Text of the experiment file."""
    fingerprint: Mapping[str, object] = field(default_factory=dict)
    """What the run depended on: versions, device, threads."""
    commands: Sequence[tuple[str, str]] = ()
    """Further (what it does, command) pairs."""


def gather(
    run_directory: RunDirectory,
    bisect: RunDirectory,
    *,
    verdict: Verdict,
    trials: Sequence[TrialRecord],
    steps: Sequence[StepRecord] | None = None,
) -> Report:
    """Return the report on a verdict, read from the directories of the run and of its bisect.

    Args:
        steps: The run's steps where they are at hand; None reads them.
    """
    folders = {
        record.spec.key: RunDirectory.open(bisect.path / "trials" / record.directory)
        for record in trials
        if record.directory and (bisect.path / "trials" / record.directory / "run.json").exists()
    }
    trial_steps = {
        record.spec.key: folders[record.spec.key].read_steps()
        for record in trials
        if record.spec.key in folders and record.spec.role != "scan"  # single samples are no curve
    }
    return Report(
        verdict=verdict,
        trials=trials,
        steps=run_directory.read_steps() if steps is None else steps,
        trial_steps=trial_steps,
        near=_near(trials, trial_steps),
        samples=read_views(bisect),
        links={key: link for key, folder in folders.items() if (link := _page_of(folder))},
        experiment=(run_directory.path / "experiment.yaml").read_text("utf-8"),
        fingerprint=run_directory.read_json("fingerprint.json"),
    )


def _near(
    trials: Sequence[TrialRecord], trial_steps: Mapping[str, Sequence[StepRecord]]
) -> Sequence[StepRecord]:
    for record in reversed(trials):
        steps = trial_steps.get(record.spec.key, ())
        if (
            record.spec.role == "control"
            and record.mismatch is None
            and "locate" in (record.spec.instruments)
        ):
            return [step for step in steps if step.layers]
    return ()


def _page_of(trial: RunDirectory) -> str:
    """Return the address of a trial's page on a tracking server it has arrived at, else ""."""
    uri = trial.manifest.tracking_uri
    known = read_upload(trial.path, uri)
    # An address that holds a password is not passed on.
    if known.store_id is None or not uri.startswith(("http://", "https://")) or "@" in uri:
        return ""
    return web_url(uri, known.experiment_id, known.store_id)
