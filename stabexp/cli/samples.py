"""`samples`: what samples of a run's data hold, those at fault or any by id."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stabexp.cli.app import ROOT, AsJson, Quiet, Root, RunId, app, busy, print_json, say
from stabexp.cli.terminal import prose_width

if TYPE_CHECKING:
    from stabexp.records import SampleView


@app.command("samples")
def show_samples(
    run_id: RunId,
    ids: Annotated[
        list[int] | None,
        typer.Argument(
            help="Ids of samples, of a stream numbers of batches; default: those that the latest "
            "verdict blames, or that stood out.",
            min=0,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the pictures as PNG files into this folder.")
    ] = None,
    root: Root = ROOT,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Show samples of a run's data as what they are: pictures, texts, numbers."""
    from stabexp.api.sample_views import samples
    from stabexp.reporting.sample_text import sample_lines

    with busy("reading samples", quiet=quiet):
        found = samples(run_id, ids or (), root=root)
    files = [] if out is None else _write_pictures(found.views, out)
    if as_json:
        print_json({"run_id": found.run_id, "why": found.why, "samples": found.views})
    else:
        width = prose_width(sys.stdout)
        print(f"samples of {found.run_id}: {found.why}\n")
        print("\n".join(sample_lines(found.views, asked=found.asked, width=width)))
    for file in files:
        say(f"written: {file}")
    if out is not None and not files:
        say("note: none of these samples has a picture, so nothing was written")


def _write_pictures(views: tuple[SampleView, ...], folder: Path) -> list[Path]:
    """Write every picture of the samples into a folder; return the files."""
    import base64

    files = []
    for view in views:
        for place, part in enumerate(view.parts):
            if part.image:
                folder.mkdir(parents=True, exist_ok=True)
                name = "".join(c if c.isalnum() or c in "._-" else "_" for c in part.name)
                file = folder / f"sample-{view.sample}-{name or place}.png"
                file.write_bytes(base64.b64decode(part.image))
                files.append(file)
    return files
