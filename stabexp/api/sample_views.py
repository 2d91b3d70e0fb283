"""Samples of a run's data as people can look at them: those a verdict blames, or any by id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from stabexp.api.runs import not_a_run
from stabexp.bisection.shown_samples import (
    COMPARED,
    VIEWS,
    chosen,
    culprits_of,
    read_views,
    views_of_trials,
    write_views,
)
from stabexp.errors import StabexpError
from stabexp.records import SampleView, StepRecord, Verdict, from_json
from stabexp.tracking import DEFAULT_ROOT, RunDirectory, find_run

if TYPE_CHECKING:
    from stabexp.bisection.inline_pool import Pool


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Samples of a run, and how they came to be looked at."""

    run_id: str
    views: tuple[SampleView, ...]
    """Those asked for, or at fault, first; then ordinary ones."""
    why: str
    """What they are, in one sentence."""
    asked: tuple[int, ...] = ()
    """The ids that were asked for."""


def samples(run_id: str, ids: Sequence[int] = (), *, root: Path | str = DEFAULT_ROOT) -> Samples:
    """Return what samples of a run's data hold.

    For ids that no bisect kept, the training function is called as far as its data: nothing is
    trained, and nothing recorded.

    Args:
        run_id: The run's id, the beginning of it, or its MLflow run id.
        ids: Ids of samples, of a stream numbers of batches; none for those that the latest verdict
            blames, or that stood out.
        root: Where runs are kept.

    Raises:
        RunNotFoundError: If there is no such run.
        StabexpError: If there is no such sample, or none is blamed.
        TrainingError: If the training function raised before its data was known.
    """
    run_directory = find_run(run_id, root)
    if run_directory.kind != "run":
        raise not_a_run(run_id, run_directory)
    home = "" if Path(root) == DEFAULT_ROOT else f" --root {root}"
    name = run_directory.run_id
    bisects = [child for child in run_directory.children() if child.kind == "bisect"]
    if ids:
        wanted = tuple(dict.fromkeys(ids))
        culprits = _culprits(bisects)
        views = tuple(
            replace(view, blamed=view.sample in culprits) for view in _read(run_directory, wanted)
        )
        return Samples(run_id=name, views=views, asked=wanted, why="as asked for")
    for bisect in reversed(bisects):
        if views := read_views(bisect):
            why = "the verdict blames them"
            if not any(view.blamed for view in views):
                why = "they stood out when they were shown alone; nothing is blamed on them"
            return Samples(run_id=name, views=views, why=why)
        if (bisect.path / "verdict.json").exists():
            blamed = culprits_of(bisect.read_record(Verdict, "verdict.json"))
            if blamed:
                views = _read(run_directory, blamed)
                return Samples(run_id=name, views=views, why="the verdict blames them")
    more = f"look at any by its id: stabexp samples{home} {name} 0 1 2"
    if not bisects and run_directory.divergence() is not None:
        more = f"find out why it diverged: stabexp bisect{home} {name}; or {more}"
    raise StabexpError(f"run {name}: no samples are blamed; {more}")


def _culprits(bisects: Sequence[RunDirectory]) -> tuple[int, ...]:
    """Return the samples that the latest verdict blames."""
    for bisect in reversed(bisects):
        if (bisect.path / "verdict.json").exists():
            return culprits_of(bisect.read_record(Verdict, "verdict.json"))
    return ()


def _read(run_directory: RunDirectory, ids: tuple[int, ...]) -> tuple[SampleView, ...]:
    """Return views of samples, the training set up in this process for it."""
    from stabexp.bisection.inline_pool import InlinePool

    where = {"directory": str(run_directory.path)}
    with InlinePool("stabexp.experiment:replay_job", where) as pool:
        return _asked(pool, ids, ordinary=_ordinary(run_directory.read_steps(), ids))


def _ordinary(records: Sequence[StepRecord], ids: Sequence[int]) -> tuple[int, ...]:
    """Return samples that the run used first, and that nothing was said about."""
    seen = dict.fromkeys(i for record in records[: 2 * COMPARED] for i in record.sample_ids)
    return tuple(i for i in seen if i not in ids)[:COMPARED]


def _asked(pool: Pool, ids: Sequence[int], *, ordinary: Sequence[int]) -> tuple[SampleView, ...]:
    from stabexp.bisection.trials import error_of
    from stabexp.bisection.workers import WorkerFailure

    pool.submit({"samples": list(ids), "ordinary": list(ordinary)})
    _, result = pool.wait()
    if isinstance(result, WorkerFailure):
        raise error_of(result) or StabexpError(f"{result.message}\n{result.log}".rstrip())
    return tuple(from_json(SampleView, item) for item in result["samples"])


def keep_samples(bisect: RunDirectory, pool: Pool, verdict: Verdict) -> None:
    """Write down which samples a verdict is about, and send them to MLflow.

    What its trials kept is there. Only what none of them looked at is read anew; where that fails,
    the verdict stands without.
    """
    views = views_of_trials(bisect)
    culprits = culprits_of(verdict)
    known = {view.sample for view in views if view.blamed}
    missing = [number for number in culprits if number not in known]
    if missing:
        run_directory = bisect.parent
        assert run_directory is not None
        try:
            beside = _ordinary(run_directory.read_steps(), culprits)
            views += _asked(pool, missing, ordinary=beside)
        except StabexpError:
            views += tuple(_unread(number) for number in missing)
    if shown := chosen(views, culprits):
        write_views(bisect, shown)
        bisect.add_artifact(VIEWS)


def _unread(number: int) -> SampleView:
    from stabexp.records import SamplePart

    part = SamplePart(name="", kind="unknown", text="its data could not be read again")
    return SampleView(sample=number, blamed=True, parts=(part,))
