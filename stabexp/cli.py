"""The command line: arguments → one API call → printed result → exit code.

Exit codes: 0 done · 1 error · 2 usage · 3 the run diverged · 4 no verdict (inconclusive or
marginal) · 5 not reproduced · 130 interrupted.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stabexp.errors import CheckpointError, StabexpError

if TYPE_CHECKING:
    from rich.console import Console

    from stabexp.experiment import Experiment
    from stabexp.records import RunResult, Verdict
    from stabexp.tracking import RunDirectory

DIVERGED, NO_VERDICT, NOT_REPRODUCED, INTERRUPTED = 3, 4, 5, 130

app = typer.Typer(
    name="stabexp",
    help="A training run diverged: find out why, prove it, fix it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Root = Annotated[Path, typer.Option("--root", help="Where runs are kept.", envvar="STABEXP_ROOT")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("-o", "--override", help="Replace a setting: -o optimizer.lr=3e-4 (repeatable)."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
RunId = Annotated[str, typer.Argument(help="The run's id, its beginning, or its MLflow run id.")]
ROOT = Path("stabexp_runs")


def main() -> None:
    """Run the command line; every error of ours becomes one message and an exit code."""
    try:
        app(standalone_mode=True)
    except StabexpError as error:
        _say(f"error: {error}")
        for note in getattr(error, "__notes__", ()):
            _say(note)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        _say("interrupted")
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        _say(
            f"error: {place}{error.strerror or error}; check that place, its space and permissions"
        )
        sys.exit(1)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _console(*, quiet: bool) -> Console:
    from rich.console import Console

    return Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=False)


@app.command()
def run(
    file: Annotated[Path | None, typer.Argument(help="The experiment file.")] = None,
    override: Overrides = None,
    resume: Annotated[
        str | None, typer.Option("--resume", help="Go on with this interrupted run instead.")
    ] = None,
    root: Root = ROOT,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train what an experiment file says. Exit code 3 and a run id when it diverged."""
    from stabexp.errors import ConfigError

    if (file is None) == (resume is None):
        raise ConfigError("give an experiment file, or --resume RUN_ID: stabexp run exp.yaml")
    result = _run(file, override or [], resume, root, quiet=quiet)
    if as_json:
        _print_json(_run_facts(result))
    else:
        _print_run(result, root)
    if result.divergence is not None:
        raise typer.Exit(DIVERGED)


def _run(
    file: Path | None, overrides: list[str], resume: str | None, root: Path, *, quiet: bool
) -> RunResult:
    from stabexp import api
    from stabexp.records import StepRecord
    from stabexp.reporting.live import RunDisplay

    console = _console(quiet=quiet)
    display: RunDisplay | None = None
    run_id = ""

    def on_start(directory: RunDirectory, experiment: Experiment) -> None:
        nonlocal display, run_id
        run_id = directory.run_id
        console.print(f"run {run_id}", style="bold")
        display = RunDisplay(console, steps=experiment.steps)

    def on_step(record: StepRecord) -> None:
        if display is not None:
            display.step(record)

    try:
        if resume is not None:
            return api.resume(resume, root=root, on_step=on_step, on_start=on_start)
        assert file is not None
        return api.run(file, overrides, root=root, on_step=on_step, on_start=on_start)
    except (KeyboardInterrupt, StabexpError) as error:
        if display is not None:
            display.close()
        go_on = f"go on with: stabexp run{_root_option(root)} --resume {run_id}"
        if isinstance(error, KeyboardInterrupt):
            _say("interrupted" + (f"; what was recorded is kept; {go_on}" if run_id else ""))
            raise typer.Exit(INTERRUPTED) from None
        if run_id and not isinstance(error, CheckpointError):
            error.add_note(f"what was recorded is kept; {go_on}")
        raise
    finally:
        if display is not None:
            display.close()


def _run_facts(result: RunResult) -> dict[str, object]:
    from stabexp.records import to_json

    facts = to_json(result)
    facts["directory"] = str(result.directory)
    return facts


def _print_run(result: RunResult, root: Path) -> None:
    for notice in result.notices:
        _say(f"warning: {notice}")
    if not result.delivered:
        where = _root_option(root)
        _say(
            f"warning: {result.tracking_uri} has not received everything; the data is safe in "
            f"{result.directory}; send it later with: stabexp sync{where} {result.run_id}"
        )
    found = result.divergence
    if found is None:
        print(f"{result.run_id}: trained {result.steps} steps, final loss {result.final_loss:.5g}")
        return
    print(
        f"{result.run_id}: DIVERGED at step {found.detected} (onset {found.onset}, "
        f"{found.pattern.replace('_', ' ')})\n  {found.message}\n"
        f"find out why: stabexp bisect{_root_option(root)} {result.run_id}"
    )


def _root_option(root: Path) -> str:
    return "" if root == ROOT else f" --root {root}"


@app.command()
def bisect(
    run_id: RunId,
    variables: Annotated[
        str | None, typer.Option(help="Comma-separated variables to change; default: all five.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Worker processes.")] = None,
    budget: Annotated[int | None, typer.Option(min=1, help="Most steps to replay.")] = None,
    again: Annotated[bool, typer.Option(help="Bisect anew though there is a verdict.")] = False,
    root: Root = ROOT,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find out why a run diverged. Safe to kill and start again."""
    verdict = _bisect(
        run_id,
        variables=variables,
        workers=workers,
        budget=budget,
        again=again,
        root=root,
        quiet=quiet,
    )
    if as_json:
        from stabexp.records import to_json

        _print_json(to_json(verdict))
    else:
        _print_verdict(run_id, root)
    if code := _verdict_code(verdict):
        raise typer.Exit(code)


def _bisect(
    run_id: str,
    *,
    variables: str | None = None,
    workers: int | None = None,
    budget: int | None = None,
    again: bool = False,
    root: Path,
    quiet: bool,
) -> Verdict:
    from stabexp import api
    from stabexp.bisection.trials import Progress
    from stabexp.config import suggest
    from stabexp.errors import ConfigError
    from stabexp.records import VARIABLES
    from stabexp.reporting.live import BisectDisplay

    chosen = [name.strip() for name in variables.split(",")] if variables else None
    for name in chosen or ():
        if name not in VARIABLES:
            raise ConfigError(f"--variables {name}: unknown variable; {suggest(name, VARIABLES)}")
    display = BisectDisplay(_console(quiet=quiet))
    try:
        return api.bisect(
            run_id,
            root=root,
            variables=chosen,
            workers=workers,
            budget=budget,
            again=again,
            progress=Progress(
                started=display.started,
                finished=display.finished,
                note=display.note,
                phase=display.phase,
            ),
        )
    except KeyboardInterrupt:
        display.close()
        _say("interrupted; what was recorded is kept, and the same command goes on from there")
        raise typer.Exit(INTERRUPTED) from None
    finally:
        display.close()


def _verdict_code(verdict: Verdict) -> int:
    if verdict.cause == "not_reproduced":
        return NOT_REPRODUCED
    return NO_VERDICT if verdict.cause in {"inconclusive", "marginal"} else 0


def _print_verdict(run_id: str, root: Path) -> None:
    from stabexp import api
    from stabexp.reporting import verdict_text

    loaded = api.load(run_id, root=root)
    assert loaded.verdict is not None
    text = (loaded.directory / "experiment.yaml").read_text("utf-8")
    print(verdict_text(loaded.verdict, loaded.trials, experiment=text))
    print(f"see it: stabexp ui{_root_option(root)} {loaded.run_id}")


@app.command()
def log(run_id: RunId, root: Root = ROOT, as_json: AsJson = False) -> None:
    """Show every trial of a bisect and what it showed, like `git bisect log`."""
    from stabexp import api
    from stabexp.records import to_json
    from stabexp.reporting import verdict_text
    from stabexp.reporting.text import trial_line

    loaded = api.load(run_id, root=root)
    if as_json:
        _print_json(
            {
                "run_id": loaded.run_id,
                "divergence": to_json(loaded.divergence) if loaded.divergence else None,
                "trials": [to_json(record) for record in loaded.trials],
                "verdict": to_json(loaded.verdict) if loaded.verdict else None,
            }
        )
        return
    found = loaded.divergence
    print(f"run {loaded.run_id}: {len(loaded.records)} steps recorded in {loaded.directory}")
    print(f"  diverged at step {found.detected}: {found.message}" if found else "  did not diverge")
    if loaded.verdict is not None:
        text = (loaded.directory / "experiment.yaml").read_text("utf-8")
        print(verdict_text(loaded.verdict, loaded.trials, experiment=text))
        return
    for record in loaded.trials:
        print(f"  {trial_line(record)}")
    if found:
        state = "is not finished" if loaded.trials else "has not begun"
        print(f"the bisect {state}: stabexp bisect{_root_option(root)} {loaded.run_id}")


@app.command()
def ui(
    run_id: Annotated[str | None, typer.Argument(help="Open at this run.")] = None,
    port: Annotated[int, typer.Option(help="Port of the MLflow UI.")] = 5000,
    root: Root = ROOT,
) -> None:
    """Open the MLflow UI on the store that the runs use."""
    from stabexp.tracking.ui import serve

    raise typer.Exit(serve(root, run_id=run_id, port=port, say=partial(print, flush=True)))


@app.command()
def sync(
    run_id: Annotated[str | None, typer.Argument(help="Only this run; default: all.")] = None,
    root: Root = ROOT,
) -> None:
    """Send to MLflow what has not arrived yet."""
    from stabexp.tracking.catalogue import find_run, list_runs
    from stabexp.tracking.ui import send

    directories = [find_run(run_id, root)] if run_id else list_runs(root)
    for directory in directories:
        print(f"{directory.run_id}: {send(directory)}")


@app.command()
def demo(
    root: Annotated[Path, typer.Option("--root", help="Where to keep the demo's runs.")] = Path(
        "stabexp_demo"
    ),
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Train a small network that diverges, find out why, prove it, and show where to look."""
    import time
    from importlib.resources import files

    started = time.monotonic()
    file = root / "unclipped_bursts.yaml"
    root.mkdir(parents=True, exist_ok=True)
    file.write_bytes((files("stabexp") / "demo" / file.name).read_bytes())
    print(f"1. training: stabexp run --root {root} {file}\n", flush=True)
    result = _run(file, [], None, root, quiet=quiet)
    _print_run(result, root)
    if result.divergence is None:
        raise StabexpError("the demo did not diverge here; please report this with its output")
    print(f"\n2. bisecting: stabexp bisect --root {root} {result.run_id}\n", flush=True)
    _bisect(result.run_id, root=root, quiet=quiet)
    _print_verdict(result.run_id, root)
    print(f"the report: {result.directory / 'report' / 'verdict.html'}")
    print(f"({time.monotonic() - started:.0f} s in all)")


@app.command()
def schema() -> None:
    """Print the JSON schema of the experiment file, for editors."""
    from stabexp.schema import experiment_schema

    _print_json(experiment_schema())


@app.command("list")
def list_names(
    kind: Annotated[
        str, typer.Argument(help="runs, tasks, detectors, monitors or interventions.")
    ] = "runs",
    root: Root = ROOT,
) -> None:
    """List the runs there are, or the names an experiment file can use."""
    from stabexp.schema import catalogue, run_lines

    for line in run_lines(root) if kind == "runs" else catalogue(kind):
        print(line)


@app.command()
def version() -> None:
    """Print the version."""
    import stabexp

    print(stabexp.__version__)


def _print_json(data: object) -> None:
    import json

    print(json.dumps(data, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
