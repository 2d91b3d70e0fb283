"""`health`: is a saved state whole, which tensors are not, and which layers stand out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stabexp.api.runs import not_a_run
from stabexp.errors import CheckpointError, RunNotFoundError
from stabexp.tracking import DEFAULT_ROOT, find_run

if TYPE_CHECKING:
    from stabexp.findings.health import Health


def health(
    source: str | Path, *, step: int | None = None, root: Path | str = DEFAULT_ROOT
) -> Health:
    """Return what is wrong with a saved state; nothing is built and nothing is run.

    Args:
        source: A run's id, the beginning of it, or its MLflow run id; or a file that torch or
            safetensors saved.
        step: Of a run, the checkpoint of this step; None takes the newest.
        root: Where runs are kept.

    Raises:
        RunNotFoundError: If there is neither a run nor a file of this name.
        CheckpointError: If the checkpoint cannot be read, or there is none.
    """
    from stabexp.findings.health import examine
    from stabexp.state.tensor_figures import figures_of_file

    path = Path(source)
    if path.is_file():
        return examine(figures_of_file(path), str(source))
    try:
        directory = find_run(str(source), Path(root))
    except RunNotFoundError as error:
        raise RunNotFoundError(f"{error}, nor a checkpoint file of this name") from None
    if directory.kind != "run":
        raise not_a_run(str(source), directory)
    from stabexp.state.checkpoints import CheckpointStore
    from stabexp.state.tensor_figures import figures_of_snapshot

    store = CheckpointStore.reader(directory.path / "checkpoints")
    infos = store.infos()
    if not infos:
        raise CheckpointError(f"run {directory.run_id}: has no checkpoint to look at")
    chosen = infos[-1].step if step is None else step
    state = figures_of_snapshot(store.load(chosen))
    first = infos[0].step
    return examine(
        state,
        directory.run_id,
        step=chosen,
        first=figures_of_snapshot(store.load(first)) if first < chosen else (),
        records=[record for record in directory.read_steps() if record.step < chosen],
    )
