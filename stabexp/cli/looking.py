"""`ui`, `sync`, `list`, `schema`, `version`, and `demo`, which shows all of it once."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from stabexp.cli.app import ROOT, Root, app, print_json
from stabexp.cli.bisecting import bisect_shown, print_verdict
from stabexp.cli.running import print_run, train_shown
from stabexp.errors import StabexpError


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
    result = train_shown(file, [], None, root, quiet=quiet)
    print_run(result, root)
    if result.divergence is None:
        raise StabexpError("the demo did not diverge here; please report this with its output")
    print(f"\n2. bisecting: stabexp bisect --root {root} {result.run_id}\n", flush=True)
    # All five settings are tried, to show what else would have hidden the symptom.
    bisect_shown(result.run_id, root=root, quiet=quiet, thorough=True)
    print_verdict(result.run_id, root)
    print(f"the report: {result.directory / 'report' / 'verdict.html'}")
    print(f"({time.monotonic() - started:.0f} s in all)")


@app.command()
def schema() -> None:
    """Print the JSON schema of the experiment file, for editors."""
    from stabexp.schema import experiment_schema

    print_json(experiment_schema())


@app.command("list")
def list_names(
    kind: Annotated[
        str, typer.Argument(help="runs, tasks, detectors, monitors, interventions, stabilisers.")
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
