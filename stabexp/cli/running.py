"""`run`: train what an experiment file says, or a training function."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stabexp.cli.app import (
    DIVERGED,
    ROOT,
    AsJson,
    Interrupted,
    Overrides,
    Quiet,
    Root,
    app,
    console_of,
    print_json,
    root_option,
    say,
    show,
)
from stabexp.errors import CheckpointError, StabexpError

if TYPE_CHECKING:
    from stabexp.experiment import Experiment
    from stabexp.records import RunResult
    from stabexp.tracking import RunDirectory


@app.command()
def run(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="EXPERIMENT", help="The experiment file, or a function: train.py:train."
        ),
    ] = None,
    override: Overrides = None,
    resume: Annotated[
        str | None, typer.Option("--resume", help="Go on with this interrupted run instead.")
    ] = None,
    root: Root = ROOT,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train an experiment or a function. Exit code 3 and a run id when it diverged."""
    from stabexp.errors import ConfigError

    if (what is None) == (resume is None):
        raise ConfigError(
            "give an experiment file or a function, or --resume RUN_ID: stabexp run exp.yaml, "
            "stabexp run train.py:train"
        )
    result = train_shown(what, override or [], resume, root, quiet=quiet)
    if as_json:
        print_json(run_facts(result))
    else:
        print_run(result, root)
        print_answer(result, root)
    recovered = result.recovery is not None and result.recovery.status == "recovered"
    if result.status != "finished" and not recovered:
        raise typer.Exit(DIVERGED)


def train_shown(
    what: Path | str | None, overrides: list[str], resume: str | None, root: Path, *, quiet: bool
) -> RunResult:
    from stabexp import api
    from stabexp.api.one_training import planned_steps
    from stabexp.bisection.trials import Progress
    from stabexp.records import StepRecord
    from stabexp.reporting.live import RunDisplay

    console = console_of(quiet=quiet)
    display: RunDisplay | None = None
    run_id = ""
    started: RunDirectory | None = None
    progress = Progress(
        started=lambda spec: console.print(f"  tried: {spec.reason}"),
        note=lambda text: console.print(f"  {text}"),
    )

    def on_start(directory: RunDirectory, experiment: Experiment) -> None:
        nonlocal display, run_id, started
        if display is not None:  # that of the run which this one recovers
            display.close()
        run_id, started = directory.run_id, directory
        console.print(f"run {run_id}", style="bold")
        display = RunDisplay(console, steps=experiment.steps)

    def on_step(record: StepRecord) -> None:
        if display is not None:
            if display.steps is None and not display.made and started is not None:
                display.steps = planned_steps(started)
            display.step(record)

    try:
        if resume is not None:
            return api.resume(
                resume, root=root, on_step=on_step, on_start=on_start, progress=progress
            )
        assert what is not None
        return api.run(
            what, overrides, root=root, on_step=on_step, on_start=on_start, progress=progress
        )
    except (KeyboardInterrupt, StabexpError) as error:
        if display is not None:
            display.close()
        go_on = f"go on with: stabexp run{root_option(root)} --resume {run_id}"
        if isinstance(error, KeyboardInterrupt):
            kept = f"; what was recorded is kept; {go_on}" if run_id else ""
            raise Interrupted("interrupted" + kept) from None
        if run_id and not isinstance(error, CheckpointError):
            error.add_note(f"what was recorded is kept; {go_on}")
        raise
    finally:
        if display is not None:
            display.close()


def run_facts(result: RunResult) -> dict[str, object]:
    from stabexp.records import to_json

    facts = to_json(result)
    facts["directory"] = str(result.directory)
    return facts


def print_run(result: RunResult, root: Path) -> None:
    for notice in result.notices:
        say(f"warning: {notice}")
    if not result.delivered:
        where = root_option(root)
        say(
            f"warning: {result.tracking_uri} has not received everything; the data is safe in "
            f"{result.directory}; send it later with: stabexp sync{where} {result.run_id}"
        )
    found = result.divergence
    if found is None and result.status == "failed":
        show(f"{result.run_id}: memory ran out after {result.steps} steps")
        return
    if found is None:
        show(f"{result.run_id}: trained {result.steps} steps, final loss {result.final_loss:.5g}")
        return
    show(
        f"{result.run_id}: DIVERGED at step {found.detected} (onset {found.onset}, "
        f"{found.pattern.replace('_', ' ')})\n  {found.message}"
    )
    if result.verdict is None and result.recovery is None:
        show(f"find out why: stabexp bisect{root_option(root)} {result.run_id}")


def print_answer(result: RunResult, root: Path) -> None:
    """Print what `on_divergence` made of it."""
    if result.verdict is not None:
        from stabexp.cli.bisecting import print_verdict

        print_verdict(result.run_id, root)
    if result.recovery is not None:
        from stabexp.cli.recovering import print_recovery

        print_recovery(result.recovery, root)
