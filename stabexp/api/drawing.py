"""`figures`: the pictures of a run's layers, drawn when it ends, and again when asked for."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from stabexp.api.runs import not_a_run
from stabexp.api.watched import layered_steps, watched_replay
from stabexp.errors import StabexpError
from stabexp.records import StepRecord
from stabexp.tracking import DEFAULT_ROOT, RunDirectory, find_run
from stabexp.tracking.uploader import start_uploader

FOLDER = "layers"
"""Folder of the pictures, in a run directory and among the run's artifacts in MLflow."""


def figures(
    run_id: str, *, out: Path | str | None = None, root: Path | str = DEFAULT_ROOT
) -> list[Path]:
    """Draw the gradient of every layer over depth and over the steps; return the files.

    Where a replay measured every layer at every step around the onset, as `locate` and `bisect` do,
    that is drawn too.

    Args:
        run_id: The run's id, the beginning of it, or its MLflow run id.
        out: Where to put them; None puts them into the run directory and sends them to MLflow.
        root: Where runs are kept.

    Raises:
        RunNotFoundError: If there is no such run.
        StabexpError: If no step of it measured layers.
    """
    directory = find_run(run_id, Path(root))
    if directory.kind != "run":
        raise not_a_run(run_id, directory)
    drawn = drawn_layers(directory)
    if not drawn:
        raise StabexpError(
            f"run {directory.run_id}: no step measured its layers; run it with "
            "`monitors: {layers: {every: 10}}`"
        )
    if out is None:
        files = _published(directory, drawn)
        start_uploader(directory.path).poll()
        return files
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    return [_written(folder / name, text) for name, text in drawn.items()]


def draw_layers(directory: RunDirectory) -> None:
    """Draw a run that has just ended, as far as its layers were measured, and hand it to MLflow."""
    with suppress(OSError):  # on a full disk the run is worth more than its pictures
        _published(directory, drawn_layers(directory))


def drawn_layers(directory: RunDirectory) -> dict[str, str]:
    """Return file name → SVG of what the steps of a run measured of its layers."""

    from stabexp.reporting.layer_figures import layer_figures

    near: Sequence[StepRecord] = ()
    known = watched_replay(directory)
    if known is not None:
        near = [r for r in layered_steps(directory, known) if r.step >= known.spec.from_step]
    return layer_figures(
        directory.read_steps(),
        name=directory.run_id,
        divergence=directory.divergence(),
        near=near,
    )


def _published(directory: RunDirectory, drawn: dict[str, str]) -> list[Path]:
    folder = directory.directory(FOLDER) if drawn else directory.path
    files = [_written(folder / name, text) for name, text in drawn.items()]
    for file in files:
        directory.add_artifact(f"{FOLDER}/{file.name}", to=FOLDER)
    return files


def _written(file: Path, text: str) -> Path:
    file.write_text(text, "utf-8")
    return file
