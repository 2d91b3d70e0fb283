"""`compare`: where two recorded runs part, and in which settings they differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stabexp import experiment as experiments
from stabexp.api.runs import experiment_of, not_a_run
from stabexp.tracking import DEFAULT_ROOT, RunDirectory, find_run
from stabexp.tracking.muted import muted

if TYPE_CHECKING:
    from stabexp.comparison import Asked, Comparison, Side


def compare(
    first: str,
    second: str,
    *,
    root: Path | str = DEFAULT_ROOT,
    replay: bool = False,
    search: bool = False,
    steps: int | None = None,
    progress: Callable[[Asked], None] = lambda asked: None,
) -> Comparison:
    """Return where two recorded runs part, and in which settings they differ.

    Args:
        first: A run's id, the beginning of it, or its MLflow run id.
        second: Another run's.
        root: Where runs are kept.
        replay: Replay both from the last state they share, to name the first differing tensor.
        search: Find the fewest settings of the run that diverged with which the other does too.
        steps: How far each training of the search goes; None goes a little past the divergence.
        progress: Told every training of the search and its answer.

    Raises:
        RunNotFoundError: If there is no such run.
        ConfigError: If a search is asked for and not exactly one of the two diverged.
    """
    from stabexp.comparison import compare as compare_sides

    found = [find_run(run_id, root) for run_id in (first, second)]
    one, other = (_side(directory) for directory in found)
    sources = [directory.read_json(experiments.SOURCE) for directory in found]
    active_run = any(source.get(experiments.IN_MLFLOW_RUN) for source in sources)
    with muted(active_run=active_run):
        return compare_sides(
            one, other, replay=replay, search=search, steps=steps, progress=progress
        )


def _side(directory: RunDirectory) -> Side:
    from stabexp.comparison import Side

    if directory.kind != "run":
        raise not_a_run(directory.run_id, directory)
    experiment, _ = experiment_of(directory)
    source = directory.read_json(experiments.SOURCE)

    def build(patch: Mapping[str, Any]) -> Any:
        changed, base = experiments.open_source(source, dict(patch))
        return experiments.program(changed, base=base)

    return Side(
        run_id=directory.run_id,
        directory=directory.path,
        records=directory.read_steps(),
        divergence=directory.divergence(),
        settings=experiments.flat(experiment),
        build=build,
    )
