"""`sync`, `schema`, `version`, and `demo`, which shows all of it once."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from stabexp.cli.app import ROOT, AsJson, Quiet, Root, app, print_json, say, show
from stabexp.cli.bisecting import bisect_shown, print_verdict
from stabexp.cli.running import print_run, run_facts, train_shown
from stabexp.cli.telling import told_now, told_words
from stabexp.errors import StabexpError


@app.command()
def sync(
    run_id: Annotated[str | None, typer.Argument(help="Only this run; default: all.")] = None,
    root: Root = ROOT,
    as_json: AsJson = False,
) -> None:
    """Send what has not arrived yet: to MLflow, and to those who are told under `on_event`."""
    from stabexp.tracking.catalogue import find_run, list_runs
    from stabexp.tracking.shipping import pending
    from stabexp.tracking.ui import send

    if run_id:
        directories = [find_run(run_id, root)]
    else:  # a run that is to stay where it is goes only when it is named
        directories = [run for run in list_runs(root) if run.manifest.upload]
    sent = []
    for directory in directories:
        result = send(directory)
        waiting = pending(directory.path)
        told = told_now(directory.path)
        sent.append({"run_id": directory.run_id, "waiting": waiting, "result": result, **told})
        if not as_json:
            show(f"{directory.run_id}: {result}{told_words(told)}")
    if as_json:
        print_json({"runs": sent})
    elif not sent and list_runs(root):
        show(f"the runs in {root} are to stay there (tracking.upload: false); name one to send it")
    elif not sent:
        show(f"no runs in {root}; make one: stabexp run exp.yaml")


@app.command()
def demo(
    root: Annotated[Path, typer.Option("--root", help="Where to keep the demo's runs.")] = Path(
        "stabexp_demo"
    ),
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train a small network that diverges, find out why, prove it, and show where to look."""
    import time
    from importlib.resources import files

    from stabexp.records import to_json

    started = time.monotonic()
    file = root / "unclipped_bursts.yaml"
    root.mkdir(parents=True, exist_ok=True)
    file.write_bytes((files("stabexp") / "demo" / file.name).read_bytes())
    tell = say if as_json else partial(print, flush=True)
    if not quiet:
        tell(f"1. training: stabexp run --root {root} {file}\n")
    result = train_shown(file, [], None, root, quiet=quiet)
    if not as_json:
        print_run(result, root)
    if result.divergence is None:
        raise StabexpError("the demo did not diverge here; please report this with its output")
    if not quiet:
        tell(f"\n2. bisecting: stabexp bisect --root {root} {result.run_id}\n")
    # All five settings are tried, to show what else would have hidden the symptom.
    verdict = bisect_shown(result.run_id, root=root, quiet=quiet, thorough=True)
    report = result.directory / "report" / "verdict.html"
    seconds = time.monotonic() - started
    if as_json:
        answer = {"run": run_facts(result), "verdict": to_json(verdict)}
        print_json({**answer, "report": report, "seconds": seconds})
        return
    print_verdict(result.run_id, root)
    show(f"the report: {report}\n({seconds:.0f} s in all)")


@app.command()
def schema(as_json: AsJson = False) -> None:
    """Print the JSON schema of the experiment file, for editors."""
    from stabexp.schema import experiment_schema

    print_json(experiment_schema())


@app.command()
def version(as_json: AsJson = False) -> None:
    """Print the version, with `--json` also those of what it rests on."""
    import platform
    from importlib.metadata import version as installed

    if not as_json:
        print(installed("stabexp"))
        return
    names = ("stabexp", "torch", "mlflow", "optuna")
    print_json({"python": platform.python_version(), **{name: installed(name) for name in names}})
