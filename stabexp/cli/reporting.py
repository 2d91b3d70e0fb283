"""`report` and `ui`: what was found out, as a file to hand on, and in MLflow's pages."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from stabexp.cli.app import ROOT, AsJson, Root, RunId, app, print_json
from stabexp.cli.json_output import print_json_now
from stabexp.errors import StabexpError


@app.command()
def report(
    run_id: RunId,
    format: Annotated[
        str | None,
        typer.Option(
            "--format", help="html: a page; md: for an issue or a pull request; json: for programs."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Where to write it; - is the terminal. Default: a page goes to "
            "RUN_ID-report.html, the others to the terminal.",
        ),
    ] = None,
    bisect: Annotated[
        int | None, typer.Option("--bisect", help="Which bisect, from 1; default: the latest.")
    ] = None,
    root: Root = ROOT,
    as_json: AsJson = False,
) -> None:
    """Write what was found out about a run: a page, Markdown for an issue, or JSON."""
    from stabexp import api
    from stabexp.api.reporting import FORMATS
    from stabexp.tracking import find_run

    chosen = format or _format_of(out, as_json=as_json)
    if chosen not in FORMATS:
        raise typer.BadParameter(
            f"{chosen!r} is none of {', '.join(FORMATS)}", param_hint="--format"
        )
    text = api.report(run_id, format=chosen, bisect=bisect, root=root)
    if out is None and chosen == "html":
        out = Path(f"{find_run(run_id, root).run_id}-report.html")
    if out is not None and str(out) != "-":
        _write(out, text)
        if as_json:
            print_json({"run_id": find_run(run_id, root).run_id, "format": chosen, "file": out})
        else:
            print(out)
    elif as_json:
        import json

        print_json(json.loads(text) if chosen == "json" else {"format": chosen, "text": text})
    else:
        sys.stdout.write(text)


def _format_of(out: Path | None, *, as_json: bool) -> str:
    """Return the format that a file's name asks for; JSON when that is asked for, else a page."""
    known = {".html": "html", ".htm": "html", ".md": "md", ".markdown": "md", ".json": "json"}
    if out is not None and out.suffix.lower() in known:
        return known[out.suffix.lower()]
    return "json" if as_json and out is None else "html"


def _write(file: Path, text: str) -> None:
    """Write a file whole or not at all."""
    if not file.parent.is_dir():
        raise StabexpError(f"{file.parent}: no such folder; make it, or name another with --out")
    half = file.with_name(f".{file.name}.part")
    try:
        half.write_text(text, "utf-8")
        half.replace(file)
    finally:
        half.unlink(missing_ok=True)


@app.command()
def ui(
    run_id: Annotated[
        str | None,
        typer.Argument(help="Open at this run, bisect or trial; default: all runs."),
    ] = None,
    port: Annotated[int, typer.Option(help="Port of the MLflow UI.")] = 5000,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Say where to look; do not start a browser.")
    ] = False,
    root: Root = ROOT,
    as_json: AsJson = False,
) -> None:
    """Open the MLflow UI on the store that the runs use, at the page that matters."""
    from stabexp.tracking.ui import serve

    raise typer.Exit(
        serve(
            root,
            run_id=run_id,
            port=port,
            say=partial(print, flush=True),
            browse=not (no_open or as_json),
            tell=print_json_now if as_json else None,
        )
    )
