"""`replay`, `check` and `compare`: look closer at one run, or at two."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from stabexp.cli.app import (
    FOUND,
    ROOT,
    AsJson,
    Overrides,
    Quiet,
    Root,
    RunId,
    app,
    busy,
    console_of,
    print_json,
    say,
    show,
)
from stabexp.cli.bisecting import bisect_display, print_verdict, verdict_code
from stabexp.cli.terminal import prose_width
from stabexp.errors import ConfigError


@app.command()
def replay(
    run_id: RunId,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", help="What to change: optimizer.lr=1e-4, clip=1 (repeatable)."),
    ] = None,
    from_step: Annotated[
        int | None, typer.Option("--from", help="The checkpoint to start from.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="How many steps to replay.")] = None,
    root: Root = ROOT,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Replay a run from a checkpoint with something changed by hand."""
    from stabexp import api
    from stabexp.records import to_json
    from stabexp.reporting.text import trial_lines

    with busy("replaying", quiet=quiet):
        record, notices = api.replay(
            run_id, assignments or (), from_step=from_step, steps=steps, root=root
        )
    for notice in notices:
        say(f"note: {notice}")
    if as_json:
        print_json(to_json(record))
    else:
        width = prose_width(sys.stdout)
        show("\n".join(trial_lines(record, width)))


@app.command()
def check(
    what: Annotated[
        str,
        typer.Argument(
            help="Before training: the experiment file, train.py:train or package.module:train. "
            "Afterwards: the run's id, or its beginning."
        ),
    ],
    overrides: Overrides = None,
    steps: Annotated[
        int, typer.Option(min=1, help="Before training: how many updates to try.")
    ] = 8,
    ranges: Annotated[
        bool,
        typer.Option(
            "--ranges", help="Before training: show how far each module is from float16's ends."
        ),
    ] = False,
    root: Root = ROOT,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Examine a training before it begins, or a run that is not what it should be."""
    from stabexp import api
    from stabexp.records import to_json

    if api.is_setup(what):
        from stabexp.preflight import preflight_text

        with busy(f"trying {steps} updates", quiet=quiet):
            found = api.check_setup(what, overrides or (), updates=steps)
        if as_json:
            print_json(to_json(found))
        else:
            show(preflight_text(found, ranges=ranges))
        if not found.clean:
            raise typer.Exit(FOUND)
        return
    if overrides:
        raise ConfigError(
            f"check: -o is for a training that has not begun, and {what!r} is neither an "
            "experiment file nor train.py:train"
        )
    with bisect_display(quiet=quiet) as progress:
        verdict = api.check(what, root=root, progress=progress)
    if as_json:
        print_json(to_json(verdict))
    else:
        print_verdict(what, root)
    if code := verdict_code(verdict):
        raise typer.Exit(code)


@app.command()
def compare(
    first: RunId,
    second: Annotated[str, typer.Argument(help="Another run.")],
    replay: Annotated[
        bool,
        typer.Option(help="Replay both from the last common state: which tensor?"),
    ] = False,
    search: Annotated[
        bool, typer.Option(help="Which settings of the bad run make the good one diverge?")
    ] = False,
    steps: Annotated[
        int | None, typer.Option(min=1, help="How far each training of the search goes.")
    ] = None,
    root: Root = ROOT,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Show where two runs part, in which tensor, and which settings make the difference."""
    from stabexp import api
    from stabexp.comparison import Asked, comparison_text
    from stabexp.records import to_json

    console = console_of(quiet=quiet)

    def asked(question: Asked) -> None:
        word = {True: "diverged", False: "stable", None: "no answer"}[question.diverged]
        what = ", ".join(question.settings) or "nothing"
        console.print(f"  with {what}: {word}" + (f" ({question.note})" if question.note else ""))

    found = api.compare(
        first, second, root=root, replay=replay, search=search, steps=steps, progress=asked
    )
    if as_json:
        print_json(to_json(found))
    else:
        show(comparison_text(found))
