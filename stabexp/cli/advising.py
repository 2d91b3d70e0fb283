"""`lr-find` and `clip-advice`: which learning rate and which clip norm a training could have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stabexp.cli.app import (
    NO_VERDICT,
    ROOT,
    AsJson,
    Overrides,
    Quiet,
    Root,
    app,
    console_of,
    print_json,
    show,
)


@app.command("lr-find")
def lr_find(
    what: Annotated[
        str,
        typer.Argument(
            metavar="EXPERIMENT", help="The experiment file, or a function: train.py:train."
        ),
    ],
    override: Overrides = None,
    first: Annotated[float, typer.Option("--first", help="Rate at which the ramp begins.")] = 1e-7,
    last: Annotated[float, typer.Option("--last", help="Rate at which it ends.")] = 10.0,
    steps: Annotated[int, typer.Option("--steps", help="Steps of the ramp.")] = 200,
    trial_steps: Annotated[
        int,
        typer.Option("--trial-steps", help="Steps of each trial from scratch; 0 tries nothing."),
    ] = 60,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Write the curve to this SVG file.")
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Find the learning rate: a ramp, then trials from scratch. Leaves no run behind."""
    from stabexp.advice import finder_svg, finder_text
    from stabexp.api import advising
    from stabexp.experiment import given
    from stabexp.records import to_json

    console = console_of(quiet=quiet)
    found = advising.lr_find(
        what,
        override or [],
        first=first,
        last=last,
        ramp_steps=steps,
        probe_steps=trial_steps,
        on_phase=lambda text: console.print(text, style="dim"),
    )
    experiment = given(what, override or []).experiment
    command = advising.command_with(found, what, override or [], experiment)
    usual = advising.usual_rate(found, steps=experiment.steps)
    if plot is not None:
        plot.write_text(
            finder_svg(found, title=f"learning rate finder: {experiment.name}"), "utf-8"
        )
    if as_json:
        facts = {**to_json(found), "command": command, "usual": usual}
        print_json({**facts, "plot": plot})
    else:
        show(finder_text(found, command=command, usual=usual))
        if plot is not None:
            show(f"the curve: {plot}")
    if found.rate is None:
        raise typer.Exit(NO_VERDICT)


@app.command("clip-advice")
def clip_advice(
    source: Annotated[
        str,
        typer.Argument(
            help="A run's id, an MLflow run id, or a log with gradient norms, as for diagnose."
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
    root: Root = ROOT,
    as_json: AsJson = False,
) -> None:
    """Say what to clip gradients to, and what other limits would have done."""
    from stabexp.advice import clip_text
    from stabexp.api import clipping
    from stabexp.records import to_json

    advice = clipping.clip_advice(
        source, root=root, tracking_uri=tracking_uri, loss=loss, grad_norm=grad_norm
    )
    command = clipping.command_to_clip(source, advice.limit, root=root)
    if as_json:
        print_json({**to_json(advice), "command": command})
    else:
        show(clip_text(advice, command=command))
