"""What an experiment file can contain, for editors and for `stabexp list`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from stabexp.config import Component, suggest
from stabexp.errors import ConfigError
from stabexp.experiment import Experiment

KINDS = ("runs", "tasks", "detectors", "monitors", "interventions", "stabilisers")


def experiment_schema() -> dict[str, Any]:
    """Return the JSON schema of the experiment file, plug-in arguments included."""
    schema = Experiment.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "stabexp experiment"
    properties = schema["properties"]
    for kind in ("detectors", "monitors", "stabilisers"):
        parts = {name: _arguments(made) for name, made in _table(kind).items()}
        words: list[dict[str, Any]] = []
        if kind == "monitors":
            from stabexp.monitors.presets import PRESETS

            words = [_named([*PRESETS, *parts])]
            parts |= {
                preset: {"anyOf": [{"type": "null"}, {"maxProperties": 0}]} for preset in PRESETS
            }
        properties[kind] = {
            "description": properties[kind].get("description", ""),
            "anyOf": [
                *words,
                {"type": "array", "items": _named(parts)},
                {
                    "type": "object",
                    "properties": parts,
                    "propertyNames": _named(parts),
                    "additionalProperties": {"type": ["object", "null"]},
                },
            ],
        }
    doses = {name: made.model_fields["dose"] for name, made in _table("interventions").items()}
    properties["interventions"]["propertyNames"] = _named(doses)
    for short in ("task", "train", "schedule"):
        properties[short] = {
            "description": properties[short].get("description", ""),
            "anyOf": [{"type": "string"}, *_choices(properties[short])],
        }
    return schema


def _named(names: Iterable[str]) -> dict[str, Any]:
    """Return what a plug-in may be called: a built-in name, or a class in a file or a package."""
    own = {"type": "string", "pattern": r"^.+:[A-Za-z_][\w.]*$"}
    return {"anyOf": [{"enum": list(names)}, own]}


def _choices(part: dict[str, Any]) -> list[dict[str, Any]]:
    if "anyOf" in part:
        return list(part["anyOf"])
    return [{key: value for key, value in part.items() if key in {"$ref", "allOf"}}]


def _arguments(made: type[Component]) -> dict[str, Any]:
    schema = made.model_json_schema()
    return {"anyOf": [{"type": "null"}, schema]}


def _table(kind: str) -> dict[str, type[Component]]:
    if kind == "detectors":
        from stabexp.detectors import DETECTORS

        return dict(DETECTORS)
    if kind == "monitors":
        from stabexp.monitors import MONITORS

        return dict(MONITORS)
    if kind == "stabilisers":
        from stabexp.stabilisers import STABILISERS

        return dict(STABILISERS)
    from stabexp.interventions import INTERVENTIONS

    return dict(INTERVENTIONS)


def catalogue(kind: str) -> Iterator[str]:
    """Yield one line per plug-in of a kind and one per argument, with its documentation.

    Args:
        kind: One of KINDS but "runs", or a file or module with plug-ins of the user's own.

    Raises:
        ConfigError: If there is no such kind, or the file cannot be loaded or has none.
    """
    made = components(kind)
    costs: dict[str, str] = {}
    if kind == "monitors":
        from stabexp.monitors.costs import cost_words, preset_lines

        yield from preset_lines()
        costs = {name: cost_words(name) for name in made}
    for name, component in made.items():
        yield f"{name}: {_first_line(component)}"
        if cost := costs.get(name):
            yield f"    time: {cost}"
        for field, info in component.model_fields.items():
            default = "" if info.is_required() else f" (default {info.get_default()!r})"
            text = " ".join((info.description or "").split())
            yield f"    {field}{default}: {text}"


def components(kind: str) -> dict[str, type[Component]]:
    """Return what can be named in the experiment file, by name; see `catalogue`."""
    if kind == "tasks":
        from stabexp.tasks import TASKS, task_class

        return {name: task_class(name) for name in TASKS}
    if kind in KINDS:
        return _table(kind)
    if not (kind.endswith(".py") or "." in kind):
        hint = suggest(kind, KINDS)
        raise ConfigError(f"list {kind}: unknown kind; {hint}; your own are in 'path/to/file.py'")
    return _own_components(kind)


def _own_components(source: str) -> dict[str, type[Component]]:
    """Return the plug-ins that a file or module of the user's own defines."""
    from stabexp.detectors import Detector
    from stabexp.interventions import Intervention
    from stabexp.loading import import_from, load_module
    from stabexp.monitors import Monitor
    from stabexp.stabilisers import Stabiliser
    from stabexp.tasks import Task

    if not source.endswith(".py"):
        import_from(Path.cwd())
    module = load_module(source, place=f"list {source}", base=None)
    found: dict[str, type[Component]] = {
        f"{source}:{name}": value
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, (Detector, Monitor, Intervention, Stabiliser, Task))
        and value.__module__ == module.__name__
    }
    if not found:
        raise ConfigError(
            f"list {source}: no plug-in in it; derive a class from Detector, Monitor, Intervention,"
            " Stabiliser or Task"
        )
    return found


def _first_line(component: type[Component]) -> str:
    return (component.__doc__ or "").strip().splitlines()[0]


def run_lines(root: Path) -> Iterator[str]:
    """Yield one line per run below `root`, oldest first."""
    from datetime import datetime

    from stabexp.tracking import list_runs

    runs = list_runs(root)
    if not runs:
        yield f"no runs in {root}; make one: stabexp run exp.yaml"
    for directory in runs:
        when = datetime.fromtimestamp(directory.created).strftime("%Y-%m-%d %H:%M")
        state = directory.status().lower()
        if (found := directory.divergence()) is not None:
            state = f"diverged at step {found.detected}"
        if (directory.path / "report" / "verdict.json").exists():
            verdict = directory.read_json("report/verdict.json")["verdict"]
            state += f" · {verdict['cause']} ({verdict['confidence']:.2f})"
        yield f"{when}  {directory.run_id}  {state}"
