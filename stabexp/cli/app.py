"""What the commands share: the application, its options, exit codes, where messages go."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

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
RunId = Annotated[str, typer.Argument(help="The run's id, its beginning, or its MLflow run id.")]
ROOT = Path("stabexp_runs")


def say(text: str) -> None:
    print(text, file=sys.stderr)


def console_of(*, quiet: bool) -> Console:
    from rich.console import Console

    return Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=False)


def root_option(root: Path) -> str:
    return "" if root == ROOT else f" --root {root}"


def print_json(data: object) -> None:
    import json

    print(json.dumps(data, indent=2, ensure_ascii=False))
