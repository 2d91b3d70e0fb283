"""From an experiment file, a training function, or what was kept of either, to an experiment.

A file, a reference and a function object differ in where the experiment begins and in nothing else:
all three end in one document of plain values, which is checked, recorded and replayed alike.
"""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stabexp.config import (
    Document,
    guess,
    override,
    patched,
    read_document,
    validate,
)
from stabexp.detectors import DETECTORS, Detector
from stabexp.errors import ConfigError
from stabexp.experiment.assignments import as_yaml, assignments_of
from stabexp.experiment.references import Reference, find_function, is_reference, reference_to
from stabexp.experiment.sections import Experiment
from stabexp.interventions import intervention
from stabexp.plugins import component
from stabexp.tracking.muted import in_active_run

SOURCE = "source.json"
"""In a run directory: the experiment as it was given, with which its replays are built."""

IN_MLFLOW_RUN = "in_mlflow_run"
"""Its key for whether an MLflow run of the user's own was active when the training began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """An experiment as its user gave it."""

    experiment: Experiment
    document: Document
    base: Path
    """Folder that relative file references start from, absolute."""
    overrides: tuple[str, ...]
    """"key.sub=value" settings, those given by keyword included."""
    text: str
    """The experiment as YAML: the file itself, or what one would have said."""

    def source(self) -> dict[str, Any]:
        """Return what a run directory keeps of it, JSON-ready, for `open_source`."""
        kept = {
            "base": str(self.base),
            "overrides": list(self.overrides),
            IN_MLFLOW_RUN: in_active_run(),
        }
        return self.document.to_json() | kept


def given(
    what: Path | str | Callable[..., Any],
    overrides: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
) -> Given:
    """Return the experiment that a file, a reference or a function stands for.

    Args:
        what: An experiment file, `path/to/file.py:function`, `package.module:function`, or the
            function itself.
        overrides: "key.sub=value" settings that replace the file's.
        settings: The same by name, as Python values; `args` are those of the function or task.

    Raises:
        ConfigError: Naming every mistake with its place and what is allowed.
    """
    if isinstance(overrides, str) or not all(isinstance(text, str) for text in overrides):
        raise ConfigError(
            f"run: overrides: expected a list of 'key=value' texts, found {overrides!r}; "
            "or give settings by name: steps=400"
        )
    if callable(what):
        reference = reference_to(what, folder=Path.cwd())
    elif isinstance(what, str) and is_reference(what):
        reference = Reference(what, Path.cwd())
    elif isinstance(what, (str, Path)):
        return _from_file(Path(what), overrides, settings or {})
    else:
        raise ConfigError(
            f"run: expected an experiment file, 'train.py:train' or a function, found {what!r}"
        )
    begun = Document(reference.name, {"name": reference.title, "train": {"name": reference.name}})
    document, texts = _with_settings(begun, overrides, settings or {})
    return Given(
        experiment=_checked(document, base=reference.base),
        document=document,
        base=reference.base,
        overrides=texts,
        text=_as_file(document, texts),
    )


def _from_file(path: Path, overrides: Sequence[str], settings: Mapping[str, Any]) -> Given:
    if path.suffix == ".py":
        raise ConfigError(
            f"{path}: is Python, not an experiment file; name the function in it: {path}:train"
        )
    document, texts = _with_settings(read_document(path), overrides, settings)
    return Given(
        experiment=_checked(document, base=path.parent),
        document=document,
        base=path.parent.absolute(),
        overrides=texts,
        text=path.read_text(encoding="utf-8"),
    )


def _with_settings(
    document: Document, overrides: Sequence[str], settings: Mapping[str, Any]
) -> tuple[Document, tuple[str, ...]]:
    """Return the document with both kinds of settings, and all of them as override texts."""
    by_name = assignments_of(
        settings, arguments_of="task" if "task" in document.values else "train"
    )
    made = override(document, [*overrides, *by_name])
    typed = {f"-o {text}": text for text in by_name}  # told as it was given: not as an option
    origins = {where: typed.get(origin, origin) for where, origin in made.origins.items()}
    return Document(made.name, made.values, made.lines, origins), (*overrides, *by_name)


def _as_file(document: Document, overrides: Sequence[str]) -> str:
    """Return the experiment file that would have said the same."""
    command = " ".join(shlex.join(command_for(document.name, overrides)).split())
    return f"# {command}\n{as_file(document)}"


def as_file(document: Document) -> str:
    """Return a document as an experiment file."""
    return as_yaml(guess(document.values), block=True)


def command_for(name: str, overrides: Sequence[str]) -> tuple[str, ...]:
    """Return the words of the command that starts the same experiment again."""
    options = (part for text in overrides for part in ("-o", text))
    return ("stabexp", "run", name, *options)


def command_of(source: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the words of the command for a stored experiment."""
    return command_for(source["name"], source.get("overrides", ()))


def load(path: Path, overrides: list[str] | None = None) -> tuple[Experiment, Document]:
    """Read an experiment file, with `key=value` overrides.

    Raises:
        ConfigError: Naming every mistake with its place and what is allowed.
    """
    read = given(path, overrides or ())
    return read.experiment, read.document


def _checked(document: Document, *, base: Path) -> Experiment:
    experiment = from_document(document, base=base)
    _check_training(experiment, document, base=base)
    return experiment


def from_document(document: Document, *, base: Path | None = None) -> Experiment:
    """Return the experiment in a document, with plug-in names and arguments checked too.

    Args:
        document: Values as typed.
        base: Folder that plug-ins in files are named from; None: the current one.

    Raises:
        ConfigError: Naming every mistake with its place and what is allowed.
    """
    experiment = validate(Experiment, document)
    tables: dict[str, tuple[Mapping[str, Any], Any]] = {"detectors": (DETECTORS, Detector)}
    if experiment.monitors != Experiment.model_fields["monitors"].default:
        from stabexp.monitors import MONITORS, Monitor  # imports torch

        tables["monitors"] = (MONITORS, Monitor)
    if experiment.stabilisers:
        from stabexp.stabilisers import STABILISERS, Stabiliser  # imports torch

        tables["stabilisers"] = (STABILISERS, Stabiliser)
    for kind, (table, parent) in tables.items():
        for name, args in getattr(experiment, kind).items():
            component(table, kind, name, args, parent=parent, base=base, document=document)
    for variable, dose in experiment.interventions.items():
        intervention(variable, dose, base=base, document=document)
    return experiment


def _check_training(experiment: Experiment, document: Document, *, base: Path) -> None:
    """Check what needs torch and the user's own files, while lines of the file can be named."""
    from stabexp.tasks import task_class

    kind = "task" if experiment.task is not None else "train"
    named = experiment.task or experiment.train
    assert named is not None
    at = (kind, "name") if (kind, "name") in document.lines else (kind,)
    try:
        made = (task_class if experiment.task else find_function)(named.name, base=base)
    except ConfigError as error:
        problem = str(error).removeprefix("task ").removeprefix("function ")
        if document.place(at) == f"{document.name}: {kind}":  # a reference: it names itself
            raise ConfigError(problem) from error
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
    base = Path(source["base"])
    return from_document(document, base=base), base
