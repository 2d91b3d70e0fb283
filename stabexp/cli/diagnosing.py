"""`diagnose`, `health`, `locate` and `figures`: what a run shows, its state, its layers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stabexp.cli.app import (
    DIVERGED,
    FOUND,
    NO_VERDICT,
    NOT_REPRODUCED,
    ROOT,
    AsJson,
    Quiet,
    Root,
    RunId,
    app,
    busy,
    print_json,
    show,
)


@app.command()
def diagnose(
    source: Annotated[
        str,
        typer.Argument(
            help="A run's id, an MLflow run id, trainer_state.json, a CSV or JSON lines file, "
            "TensorBoard events, or a folder with one of them."
        ),
    ],
    tracking_uri: Annotated[
        str | None,
        typer.Option(
            "--tracking-uri", help="Where MLflow keeps the run.", envvar="MLFLOW_TRACKING_URI"
        ),
    ] = None,
    loss: Annotated[
        str | None, typer.Option("--loss", help="The training loss's name in the log.")
    ] = None,
    grad_norm: Annotated[
        str | None, typer.Option("--grad-norm", help="The gradient norm's, before clipping.")
    ] = None,
    lr: Annotated[str | None, typer.Option("--lr", help="The learning rate's.")] = None,
    detectors: Annotated[
        str, typer.Option("--detectors", help="Detectors to ask, separated by commas.")
    ] = "",
    settings: Annotated[
        list[str] | None,
        typer.Option("--setting", help="What you know: precision=fp16, clip_norm=1 (repeatable)."),
    ] = None,
    root: Root = ROOT,
    as_json: AsJson = False,
) -> None:
    """Judge any run's curves after the fact, also of one that stabexp did not record."""
    from stabexp import api
    from stabexp.diagnosis import diagnosis_text
    from stabexp.records import to_json

    found = api.diagnose(
        source,
        root=root,
        tracking_uri=tracking_uri,
        loss=loss,
        grad_norm=grad_norm,
        lr=lr,
        detectors=[name.strip() for name in detectors.split(",") if name.strip()],
        settings=settings or (),
    )
    if as_json:
        print_json(to_json(found))
    else:
        show(diagnosis_text(found))
    if found.divergence is not None:
        raise typer.Exit(DIVERGED)


@app.command()
def health(
    source: Annotated[
        str, typer.Argument(help="A run's id, or a checkpoint file: model.pt, model.safetensors.")
    ],
    step: Annotated[
        int | None, typer.Option("--step", help="Of a run, the checkpoint; default: the newest.")
    ] = None,
    root: Root = ROOT,
    as_json: AsJson = False,
) -> None:
    """Look into a saved state: what is not finite, too large, or unlike the other layers."""
    from stabexp import api
    from stabexp.diagnosis.health_text import health_text
    from stabexp.records import to_json

    found = api.health(source, step=step, root=root)
    print_json(to_json(found)) if as_json else show(health_text(found))
    if not found.healthy:
        raise typer.Exit(FOUND)


@app.command()
def locate(
    run_id: RunId,
    root: Root = ROOT,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Name the operation and the line that made the first NaN or Inf of a run."""
    from stabexp import api
    from stabexp.diagnosis.origin_text import origin_text
    from stabexp.records import to_json

    with busy("replaying the steps up to the crash", quiet=quiet):
        found = api.locate(run_id, root=root)
    print_json(to_json(found)) if as_json else show(origin_text(found))
    if found.record.mismatch is not None:
        raise typer.Exit(NOT_REPRODUCED)
    if found.finding is None:
        raise typer.Exit(NO_VERDICT)


@app.command()
def figures(
    run_id: RunId,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for them; default: the run's own.")
    ] = None,
    root: Root = ROOT,
    as_json: AsJson = False,
) -> None:
    """Draw the gradient of every layer over depth and over the steps."""
    from stabexp import api

    files = api.figures(run_id, out=out, root=root)
    if as_json:
        print_json({"files": files})
    else:
        show("\n".join(map(str, files)))
