"""Takes views of samples where the data is: at the end of a replay, or of a mere set-up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from stabexp.bisection.shown_samples import (
    COMPARED,
    looked_at,
    views_of_trials,
    write_views,
)
from stabexp.errors import StabexpError, TrackingError
from stabexp.instruments.shown_batches import FewRows, ShownBatches
from stabexp.records import SampleView, StepRecord, TrialSpec
from stabexp.tasks.sample_views import Showing, sample_views
from stabexp.tracking.run_directory import RunDirectory
from stabexp.training.run import Run
from stabexp.training.set_up import set_up
from stabexp.training.settings import Program


def keep_views(
    trial: RunDirectory,
    spec: TrialSpec,
    run: Run,
    records: Sequence[StepRecord],
    findings: Mapping[str, Any],
    *,
    batches: ShownBatches,
    original: Sequence[StepRecord],
) -> None:
    """Leave views of what a replay can show of suspected samples in its directory.

    What trials before this one kept is not read again.

    Args:
        trial: The replay's directory.
        spec: What it was.
        run: It, ended.
        records: Its steps.
        findings: What its instruments found.
        batches: What it kept of a stream.
        original: The diverged run's steps.
    """
    if not run.settings.show_samples:
        return
    wanted = looked_at(spec, records, findings)
    bisect = trial.parent
    kept = {view.sample for view in views_of_trials(bisect) if view.blamed} if bisect else set()
    suspects = tuple(i for i in wanted.suspects if i not in kept)
    if run.dataset is None:
        suspects = tuple(i for i in suspects if i in batches.kept)
    if not suspects:
        return
    ordinary: Sequence[int] = wanted.ordinary
    if run.dataset is None:
        ordinary = [i for i in batches.kept if i not in wanted.suspects][:COMPARED]
    views = _views(
        run, batches.kept, suspects, ordinary=ordinary, first_steps=first_steps(original)
    )
    try:
        scanned = spec.role == "scan"
        write_views(trial, [replace(each, stood_out=each.blamed and scanned) for each in views])
    except (TrackingError, ValueError, TypeError) as error:
        run.notice(f"samples could not be kept to be shown: {error}")


def views_without_training(
    program: Program,
    wanted: Sequence[int],
    *,
    ordinary: Sequence[int] = (),
    original: Sequence[StepRecord] = (),
) -> tuple[SampleView, ...]:
    """Return views of any samples of a training, which is set up for it and trains nothing.

    Args:
        program: The training.
        wanted: Ids of samples; of a stream, numbers of batches.
        ordinary: What to compare them with.
        original: The steps of the run that used them.

    Raises:
        TrainingError: If the training function raised before its data was known.
        StabexpError: If it never told its data, or has no such sample.
    """
    run = set_up(program, sorted({*wanted, *ordinary}))
    size = run.dataset_size
    if size is not None and (beyond := [i for i in wanted if not 0 <= i < size]):
        raise StabexpError(f"there is no sample {beyond[0]}; the dataset has {size:,} samples")
    return _views(run, run.batches, wanted, ordinary=ordinary, first_steps=first_steps(original))


def _views(
    run: Run,
    batches: Mapping[int, FewRows],
    suspects: Sequence[int],
    *,
    ordinary: Sequence[int],
    first_steps: Mapping[int, int],
) -> tuple[SampleView, ...]:
    showing, read = run.showing, _reader(run.dataset)
    if run.dataset is None:
        read = batches.__getitem__
        ordinary = [i for i in ordinary if i in batches]
        if (show := showing.show) is not None:
            showing = Showing(show=_of_batches(show), decode=showing.decode)
    return sample_views(read, suspects, ordinary=ordinary, showing=showing, first_steps=first_steps)


def _reader(dataset: Any) -> Callable[[int], Any]:
    return lambda number: dataset[number]


def _of_batches(show: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what shows a batch of a stream: of its rows, those that were kept."""
    return lambda rows: show(rows.batch)


def first_steps(records: Sequence[StepRecord]) -> dict[int, int]:
    """Return id → the first step that used the sample."""
    found: dict[int, int] = {}
    for record in records:
        for number in record.sample_ids:
            found.setdefault(number, record.step)
    return found
