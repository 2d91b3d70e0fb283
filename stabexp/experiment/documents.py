"""From an experiment file, or what was kept of one, to a checked experiment."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from stabexp.config import (
    Document,
    component,
    guess,
    override,
    patched,
    read_document,
    validate,
)
from stabexp.detectors import DETECTORS
from stabexp.errors import ConfigError
from stabexp.experiment.sections import Experiment
from stabexp.interventions import INTERVENTIONS

SOURCE = "source.json"
"""In a run directory: the experiment as it was given, with which its replays are built."""


def load(path: Path, overrides: list[str] | None = None) -> tuple[Experiment, Document]:
    """Read an experiment file, with `key=value` overrides.

    Raises:
        ConfigError: Naming every mistake with its place and what is allowed.
    """
    document = override(read_document(path), overrides or [])
    experiment = from_document(document)
    _check_training(experiment, document, base=path.parent)
    return experiment, document


def from_document(document: Document) -> Experiment:
    """Return the experiment in a document, with plug-in names and arguments checked too."""
    experiment = validate(Experiment, document)
    tables: dict[str, Any] = {"detectors": DETECTORS, "interventions": INTERVENTIONS}
    if experiment.monitors != Experiment.model_fields["monitors"].default:
        from stabexp.monitors import MONITORS  # imports torch

        tables["monitors"] = MONITORS
    for kind, table in tables.items():
        for name, args in getattr(experiment, kind).items():
            values = {"dose": args} if kind == "interventions" else args
            component(table, kind, name, values, document=document)
    return experiment


def _check_training(experiment: Experiment, document: Document, *, base: Path) -> None:
    """Check what needs torch and the user's own files, while lines of the file can be named."""
    from stabexp.tasks import load_function, task_class

    kind = "task" if experiment.task is not None else "train"
    named = experiment.task or experiment.train
    assert named is not None
    at = (kind, "name") if (kind, "name") in document.lines else (kind,)
    try:
        made = (task_class if experiment.task else load_function)(named.name, base=base)
    except ConfigError as error:
        problem = str(error).removeprefix("task ").removeprefix("function ")
        raise ConfigError(f"{document.place(at)}: {problem}") from error
    if isinstance(made, type):
        own = Document(
            document.name, {kind: {"args": named.args}}, document.lines, document.origins
        )
        validate(made, own, at=(kind, "args"))
        return
    signature = inspect.signature(made)
    try:
        signature.bind(None, **guess(named.args))
    except TypeError as error:
        place = document.place((kind, "args"))
        raise ConfigError(f"{place}: {error}; it is {made.__name__}{signature}") from None


def open_source(
    source: dict[str, Any], patch: dict[str, Any] | None = None
) -> tuple[Experiment, Path]:
    """Return a stored experiment, with a fix's dotted keys set, and its base folder."""
    document = Document.from_json(source)
    if patch:
        document = patched(document, patch)
    return from_document(document), Path(source["base"])
