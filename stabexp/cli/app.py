"""What the commands share: the application, its options, exit codes, where messages go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stabexp.cli.json_output import print_json
from stabexp.cli.terminal import WISHED, busy, console_of, say, show

__all__ = [
    "DIVERGED",
    "FOUND",
    "INTERRUPTED",
    "NOT_REPRODUCED",
    "NO_VERDICT",
    "ROOT",
    "AsJson",
    "Interrupted",
    "Overrides",
    "Quiet",
    "Root",
    "RunId",
    "app",
    "busy",
    "console_of",
    "print_json",
    "root_option",
    "say",
    "show",
]

DIVERGED, NO_VERDICT, NOT_REPRODUCED, FOUND, INTERRUPTED = 3, 4, 5, 6, 130

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
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
RunId = Annotated[str, typer.Argument(help="The run's id, its beginning, or its MLflow run id.")]
ROOT = Path("stabexp_runs")


class Interrupted(Exception):
    """Ctrl-C, with what to tell about what was begun."""


@app.callback()
def options(
    colour: Annotated[
        bool | None,
        typer.Option(
            "--color/--no-color",
            help="Colour or none, anywhere in the command; default: on a terminal.",
        ),
    ] = None,
) -> None:
    """A training run diverged: find out why, prove it, fix it."""
    if colour is not None:
        WISHED.colour = colour


def root_option(root: Path) -> str:
    return "" if root == ROOT else f" --root {root}"
