"""`bisect` and `log`: find out why a run diverged, and see how it was found out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stabexp.cli.app import (
    NO_VERDICT,
    NOT_REPRODUCED,
    ROOT,
    AsJson,
    Interrupted,
    Quiet,
    Root,
    RunId,
    app,
    console_of,
    print_json,
    root_option,
    show,
)
from stabexp.cli.terminal import prose_width, say, show_rich

if TYPE_CHECKING:
    from stabexp.api.loading import Loaded
    from stabexp.bisection.trials import Progress
    from stabexp.records import Verdict


@app.command()
def bisect(
    run_id: RunId,
    variables: Annotated[
        str | None, typer.Option(help="Comma-separated variables to change; default: all five.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=0, help="Worker processes; 0: none.")] = None,
    budget: Annotated[
        str | None, typer.Option(help="Most steps to replay (2000) or time to take (30m).")
    ] = None,
    good: Annotated[int | None, typer.Option(help="The checkpoint to start from.")] = None,
    bad: Annotated[int | None, typer.Option(help="The step to take as the crash.")] = None,
    skip: Annotated[
        list[str] | None, typer.Option(help="Checkpoints never to start from: 120 or 100-150.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=0, help="Further orders of the data a cure must hold in.")
    ] = None,
    layers: Annotated[
        bool, typer.Option(help="Find the modules that must stay in float32.")
    ] = False,
    thorough: Annotated[
        bool, typer.Option(help="Try every variable: what else hides the symptom?")
    ] = False,
    again: Annotated[bool, typer.Option(help="Bisect anew though there is a verdict.")] = False,
    root: Root = ROOT,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Find out why a run diverged. Safe to kill and start again."""
    verdict = bisect_shown(
        run_id,
        variables=variables,
        workers=workers,
        budget=budget,
        good=good,
        bad=bad,
        skip=skip or (),
        seeds=seeds,
        layers=layers,
        thorough=thorough,
        again=again,
        root=root,
        quiet=quiet,
    )
    if as_json:
        from stabexp.records import to_json

        print_json(to_json(verdict))
    else:
        print_verdict(run_id, root)
    if code := verdict_code(verdict):
        raise typer.Exit(code)


def bisect_shown(
    run_id: str, *, root: Path, quiet: bool, variables: str | None = None, **wishes: Any
) -> Verdict:
    """Bisect with progress on the terminal; `wishes` are those of `api.bisect`."""
    from stabexp import api
    from stabexp.config import suggest
    from stabexp.errors import ConfigError
    from stabexp.records import VARIABLES

    chosen = [name.strip() for name in variables.split(",")] if variables else None
    for name in chosen or ():
        if name not in VARIABLES:
            raise ConfigError(f"--variables {name}: unknown variable; {suggest(name, VARIABLES)}")
    with bisect_display(quiet=quiet) as progress:
        return api.bisect(run_id, root=root, variables=chosen, progress=progress, **wishes)


@contextmanager
def bisect_display(*, quiet: bool) -> Iterator[Progress]:
    """Show on the terminal what is being tried; an interruption keeps what was recorded."""
    from stabexp.bisection.trials import Progress
    from stabexp.reporting.live import BisectDisplay

    display = BisectDisplay(console_of(quiet=quiet), warn=say if quiet else None)
    try:
        yield Progress(
            started=display.started,
            finished=display.finished,
            note=display.note,
            phase=display.phase,
            standing=display.standing,
        )
    except (KeyboardInterrupt, Exception) as error:
        if not _is_interruption(error):
            raise
        raise Interrupted(
            "interrupted; what was recorded is kept, and the same command goes on from there"
        ) from None
    finally:
        display.close()


def _is_interruption(error: BaseException | None) -> bool:
    """Whether Ctrl-C is what it comes from: a library may have made an error of its own of it."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def verdict_code(verdict: Verdict) -> int:
    if verdict.cause == "not_reproduced":
        return NOT_REPRODUCED
    return NO_VERDICT if verdict.cause in {"inconclusive", "marginal"} else 0


def print_verdict(run_id: str, root: Path) -> None:
    from stabexp import api

    loaded = api.load(run_id, root=root)
    _show_verdict(loaded)
    show(f"see it: stabexp ui{root_option(root)} {loaded.run_id}")


def _show_verdict(loaded: Loaded) -> None:
    from stabexp.reporting import verdict_renderable

    assert loaded.verdict is not None
    text = (loaded.directory / "experiment.yaml").read_text("utf-8")
    width = prose_width(sys.stdout)
    show_rich(
        verdict_renderable(loaded.verdict, loaded.trial_records, width=width, experiment=text)
    )


@app.command()
def log(run_id: RunId, root: Root = ROOT, as_json: AsJson = False) -> None:
    """Show every trial of a bisect and what it showed, like `git bisect log`."""
    from stabexp import api
    from stabexp.records import to_json
    from stabexp.reporting.text import trial_lines

    loaded = api.load(run_id, root=root)
    if as_json:
        print_json(
            {
                "run_id": loaded.run_id,
                "divergence": to_json(loaded.divergence) if loaded.divergence else None,
                "trials": [to_json(record) for record in loaded.trial_records],
                "verdict": to_json(loaded.verdict) if loaded.verdict else None,
            }
        )
        return
    found = loaded.divergence
    show(f"run {loaded.run_id}: {len(loaded.records)} steps recorded in {loaded.directory}")
    show(f"  diverged at step {found.detected}: {found.message}" if found else "  did not diverge")
    if loaded.verdict is not None:
        print()
        _show_verdict(loaded)
        return
    for record in loaded.trial_records:
        print("\n".join(trial_lines(record, prose_width(sys.stdout), indent="  ")))
    if found:
        state = "is not finished" if loaded.trial_records else "has not begun"
        show(f"the bisect {state}: stabexp bisect{root_option(root)} {loaded.run_id}")
