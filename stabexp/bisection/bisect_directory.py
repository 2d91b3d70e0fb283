"""The directory of a bisect: the one to go on with, or a new one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stabexp.tracking.run_directory import RunDirectory

OPTIONS = "options.json"
"""In a bisect's directory: what it was asked to do; only the same question is gone on with."""


def bisect_directory(
    run_directory: RunDirectory, options: Mapping[str, Any], *, again: bool
) -> RunDirectory:
    """Return the bisect to go on with: the latest one with these options, else a new one."""
    bisects = run_directory.directory("bisects")
    earlier = [child for child in run_directory.children() if child.kind == "bisect"]
    for directory in reversed(earlier):
        if not (directory.path / OPTIONS).exists():
            continue  # it was killed before it began
        finished = directory.status() == "FINISHED"
        if directory.read_json(OPTIONS) == options and not (again and finished):
            if not finished:
                directory.resume()
            return directory
    number = len(earlier) + 1
    directory = RunDirectory.create(
        bisects / f"bisect-{number}",
        run_id=f"{run_directory.run_id}.bisect-{number}",
        kind="bisect",
        name=f"bisect {number} of {run_directory.run_id}",
        parent_path=run_directory.path,
        experiment=run_directory.manifest.experiment,
        tracking_uri=run_directory.manifest.tracking_uri,
        params={"variables": " ".join(options["variables"]), "budget": options["budget"]},
        tags={"stabexp.role": "bisect"},
    )
    directory.write_json(OPTIONS, options)
    return directory
