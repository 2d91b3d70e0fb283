"""`diagnose`: judge any run's curves after the fact."""

from __future__ import annotations

from typing import Annotated

import typer

from stabexp.cli.app import DIVERGED, ROOT, AsJson, Root, app, print_json


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
        print(diagnosis_text(found))
    if found.divergence is not None:
        raise typer.Exit(DIVERGED)
