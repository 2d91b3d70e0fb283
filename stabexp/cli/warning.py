"""`warn`: when would a recorded run have been warned of?"""

from __future__ import annotations

from typing import Annotated

import typer

from stabexp.cli.app import ROOT, AsJson, Root, app, print_json, show


@app.command()
def warn(
    source: Annotated[
        str, typer.Argument(help="A run's id, an MLflow run id, or a log, as for diagnose.")
    ],
    tracking_uri: Annotated[
        str | None,
        typer.Option(
            "--tracking-uri", help="Where MLflow keeps the run.", envvar="MLFLOW_TRACKING_URI"
        ),
    ] = None,
    root: Root = ROOT,
    as_json: AsJson = False,
) -> None:
    """Say when the early warning would have warned of a recorded run, and of what."""
    from stabexp import api
    from stabexp.prediction import outlook_text

    found = api.warn(source, root=root, tracking_uri=tracking_uri)
    print_json(found.plain()) if as_json else show(outlook_text(found))
