"""Public names resolve, a file is named for what it holds, and none grows without end."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import stabexp
from stabexp.detectors import DETECTORS
from stabexp.instruments import INSTRUMENTS
from stabexp.interventions import INTERVENTIONS
from stabexp.monitors import MONITORS
from stabexp.stabilisers import STABILISERS
from stabexp.tasks import TASKS, task_class

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "stabexp").rglob("*.py"))
SAYING_NOTHING = {"utils", "util", "helpers", "common", "core", "manager", "engine", "misc"}
LONGEST = 400


def instrument_class(name: str) -> type:
    """Return an instrument's class, which is imported when it is used."""
    module, _, kind = INSTRUMENTS[name].partition(":")
    return getattr(importlib.import_module(module), kind)


PLUGINS = [
    pytest.param(kind, name, cls, id=f"{kind} {name}")
    for kind, table in {
        "detectors": DETECTORS,
        "instruments": {name: instrument_class(name) for name in INSTRUMENTS},
        "interventions": INTERVENTIONS,
        "monitors": MONITORS,
        "stabilisers": STABILISERS,
        "tasks": {name: task_class(name) for name in TASKS},
    }.items()
    for name, cls in table.items()
]


@pytest.mark.parametrize("name", stabexp.__all__)
def test_public_name_resolves(name):
    assert getattr(stabexp, name) is not None


def test_dir_shows_the_public_names():
    assert set(stabexp.__all__) <= set(dir(stabexp))


def test_an_unknown_public_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="bisekt"):
        _ = stabexp.bisekt


@pytest.mark.parametrize(
    "package",
    sorted(
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in MODULES
        if path.name == "__init__.py"
    ),
)
def test_every_name_a_package_exports_is_there(package):
    module = importlib.import_module(package)
    assert [name for name in getattr(module, "__all__", ()) if not hasattr(module, name)] == []


def test_no_module_has_a_name_that_says_nothing():
    names = {path.stem.strip("_") for path in MODULES} | {path.parent.name for path in MODULES}
    assert names & SAYING_NOTHING == set()


@pytest.mark.parametrize("folder", ["stabexp", "tests"])
def test_no_module_runs_away(folder):
    files = sorted((ROOT / folder).rglob("*.py"))
    lengths = {str(path.relative_to(ROOT)): len(path.read_bytes().splitlines()) for path in files}
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}


@pytest.mark.parametrize(("kind", "name", "cls"), PLUGINS)
def test_a_plug_in_is_named_like_its_file_and_its_class(kind, name, cls):
    assert cls.__module__ == f"stabexp.{kind}.{name}"
    assert re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower() == name


@pytest.mark.parametrize(
    ("kind", "name"), [param.values[:2] for param in PLUGINS if param.values[0] != "tasks"]
)
def test_a_plug_in_has_a_test_file(kind, name):
    assert (ROOT / "tests" / kind / f"test_{name}.py").exists()
