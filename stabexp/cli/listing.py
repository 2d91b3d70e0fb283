"""`list`: the runs there are, and the names an experiment file can use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stabexp.cli.app import ROOT, AsJson, Root, app, print_json, show

if TYPE_CHECKING:
    from stabexp.config import Component
    from stabexp.tracking import RunDirectory


@app.command("list")
def list_names(
    kind: Annotated[
        str,
        typer.Argument(
            help="runs, tasks, detectors, monitors, interventions or stabilisers; or a file or "
            "module with plug-ins of your own."
        ),
    ] = "runs",
    root: Root = ROOT,
    as_json: AsJson = False,
) -> None:
    """List the runs there are, or the names an experiment file can use."""
    from stabexp.schema import catalogue, components, run_lines

    if not as_json:
        lines = run_lines(root) if kind == "runs" else catalogue(kind)
        show("\n".join(lines))
    elif kind == "runs":
        from stabexp.tracking import list_runs

        print_json({"kind": kind, "items": [_run(directory) for directory in list_runs(root)]})
    else:
        items = [_component(name, made) for name, made in components(kind).items()]
        print_json({"kind": kind, "items": items})


def _run(directory: RunDirectory) -> Mapping[str, Any]:
    found = directory.divergence()
    verdict: dict[str, Any] = {}
    if (directory.path / "report" / "verdict.json").exists():
        verdict = directory.read_json("report/verdict.json")["verdict"]
    return {
        "run_id": directory.run_id,
        "created": datetime.fromtimestamp(directory.created, UTC).isoformat(timespec="seconds"),
        "status": "diverged" if found else directory.status().lower(),
        "diverged_at": found.detected if found else None,
        "onset": found.onset if found else None,
        "cause": verdict.get("cause"),
        "confidence": verdict.get("confidence"),
        "directory": directory.path,
    }


def _component(name: str, made: type[Component]) -> Mapping[str, Any]:
    return {
        "name": name,
        "description": " ".join((made.__doc__ or "").split("\n\n")[0].split()),
        "settings": [
            {
                "name": field,
                "required": info.is_required(),
                "default": None if info.is_required() else _plain(info.get_default()),
                "description": " ".join((info.description or "").split()),
            }
            for field, info in made.model_fields.items()
        ],
    }


def _plain(value: Any) -> Any:
    try:
        json.dumps(value)
    except TypeError:
        return str(value)
    return value
