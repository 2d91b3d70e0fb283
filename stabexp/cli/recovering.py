"""`recover`: bring a crashed run to its end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stabexp.cli.app import (
    DIVERGED,
    ROOT,
    AsJson,
    Quiet,
    Root,
    RunId,
    app,
    console_of,
    print_json,
    show,
)
from stabexp.cli.bisecting import bisect_display

if TYPE_CHECKING:
    from stabexp.experiment import Experiment
    from stabexp.records import Recovery
    from stabexp.tracking import RunDirectory


@app.command()
def recover(
    run_id: RunId,
    without_verdict: Annotated[
        bool,
        typer.Option("--without-verdict", help="Do not bisect: go by rules, each tried first."),
    ] = False,
    give_back: Annotated[
        bool,
        typer.Option(
            "--give-back", help="Ramp the original rate and clipping back after the danger window."
        ),
    ] = False,
    crashes: Annotated[
        int, typer.Option(min=1, help="How many crashes to answer, the first one counted.")
    ] = 3,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Worker processes of the bisect; 0: none.")
    ] = None,
    again: Annotated[bool, typer.Option(help="Recover anew though it was done.")] = False,
    diagnose: Annotated[
        bool,
        typer.Option(
            "--diagnose", help="Train nothing: which layers, and which batch, bring it back?"
        ),
    ] = False,
    root: Root = ROOT,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Bring a crashed run to its end. Exit code 3 when it crashed too often."""
    if diagnose:
        _diagnose(run_id, root, quiet=quiet, as_json=as_json)
        return
    from stabexp import api
    from stabexp.records import to_json

    console = console_of(quiet=quiet)

    def on_start(directory: RunDirectory, experiment: Experiment) -> None:
        console.print(f"goes on as {directory.run_id}")

    with bisect_display(quiet=quiet) as progress:
        done = api.recover(
            run_id,
            root=root,
            without_verdict=without_verdict,
            give_back=give_back,
            crashes=crashes,
            workers=workers,
            again=again,
            on_start=on_start,
            progress=progress,
        )
    if as_json:
        print_json({**to_json(done), "final_run": done.final_run, "rollbacks": done.rollbacks})
    else:
        print_recovery(done, root)
    if done.status != "recovered":
        raise typer.Exit(DIVERGED)


def print_recovery(done: Recovery, root: Path) -> None:
    """Print what crashed, what was done, and where it is now."""
    from stabexp.recovery.wording import summary

    show(summary(done))


def _diagnose(run_id: str, root: Path, *, quiet: bool, as_json: bool) -> None:
    from stabexp import api
    from stabexp.records import to_json
    from stabexp.recovery.layers_text import layers_text

    with bisect_display(quiet=quiet) as progress:
        found = api.diagnose_layers(run_id, root=root, progress=progress)
    if as_json:
        print_json(to_json(found))
    else:
        show(layers_text(found))
