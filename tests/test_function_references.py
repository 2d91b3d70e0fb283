"""What names a training function for other processes, and what it is called with there."""

from __future__ import annotations

import functools
import importlib
import math
import subprocess
import sys
from pathlib import Path

import pytest

import stabexp
from stabexp.config import Document, guess, override
from stabexp.errors import ConfigError
from stabexp.experiment.assignments import assignments_of
from stabexp.experiment.references import is_reference, reference_to
from stabexp.experiment.user_code import code_files
from stabexp.tasks import load_function


def python(*arguments: str, typed: str | None = None) -> str:
    """Return what Python says, to a script or to what is typed."""
    done = subprocess.run(
        [sys.executable, *arguments], input=typed, capture_output=True, text=True, check=False
    )
    return done.stderr


def outer():
    def inner(run):
        """Not at the top level."""

    return inner


def plain(run):
    """At the top level."""


def renamed(run):
    """Not what this module calls so any more."""


before, renamed = renamed, plain


class Holder:
    def train(self, run):
        """Needs an object."""


REFUSED = [
    pytest.param(lambda run: None, "a lambda has no name", "with def", id="lambda"),
    pytest.param(outer(), "outer.inner is defined inside another function", "args=", id="nested"),
    pytest.param(
        functools.partial(plain, lr=1), "partial(plain, …) has no name", "args=", id="partial"
    ),
    pytest.param(Holder().train, "Holder.train is the method of an object", "makes", id="method"),
    pytest.param(Holder, "Holder is a class, not a function", "calls it", id="class"),
    pytest.param(before, "renamed is not what", "under this name", id="defined again"),
    pytest.param(print, "print is in no Python file", "put it into a file", id="not in Python"),
]


@pytest.mark.parametrize(("function", "why", "remedy"), REFUSED)
def test_what_no_other_process_could_find_is_refused_with_the_remedy(function, why, remedy):
    with pytest.raises(ConfigError) as caught:
        stabexp.run(function, steps=3)
    assert why in str(caught.value)
    assert remedy in str(caught.value)
    assert not Path("stabexp_runs").exists()


def test_a_function_typed_into_an_interpreter_is_refused():
    code = "import stabexp\ndef train(run): pass\n\nstabexp.run(train)\n"
    for told in (python("-i", "-q", typed=code), python("-c", code)):
        assert "run: train is in no Python file (it was typed into an interpreter or" in told


def test_functions_at_the_top_level_have_a_name_whatever_they_are_called_from(
    tmp_path, tmp_path_factory, monkeypatch
):
    folder = tmp_path
    (folder / "train.py").write_text("def train(run): ...\n", "utf-8")
    (folder / "alone.py").write_text("class Holder:\n    @staticmethod\n    def go(run): ...\n")
    monkeypatch.syspath_prepend(folder)
    module = importlib.import_module("alone")
    assert reference_to(module.Holder.go, folder=folder).name == "alone.py:Holder.go"
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert reference_to(module.Holder.go, folder=elsewhere).name == f"{folder}/alone.py:Holder.go"
    loaded = load_function("train.py:train", base=folder)
    assert reference_to(loaded, folder=folder).name == "train.py:train"
    inside = reference_to(load_function, folder=folder)
    assert inside.name == "stabexp.tasks.base:load_function"
    assert inside.base == Path(stabexp.__file__).parents[1]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("train.py:train", True),
        ("some/where/train.py:Class.train", True),
        ("package.module:train", True),
        ("exp.yaml", False),
        ("train.py", False),
        ("exp.yaml:train", False),
        ("train.py:", False),
    ],
)
def test_a_reference_is_told_from_a_file(text, answer):
    assert is_reference(text) is answer


@pytest.mark.parametrize(
    "values",
    [
        {"a": 1, "b": 1e-5, "c": "1e-5", "d": "on", "e": True, "f": None, "g": "3"},
        {"a": [1, "2", None], "b": {"deep": {"er": "true"}}, "c": (0.1, 2)},
        {"a": "", "b": "two\nlines", "c": "# no comment", "d": "x: y", "e": "ü", "f": " "},
        {"a": math.inf, "b": -math.inf, "c": 10**20, "d": 0.1 + 0.2, "e": ".nan", "f": "[1]"},
        {"a": {}, "b": []},
    ],
)
def test_arguments_arrive_as_they_were_given(values):
    texts = assignments_of({"args": values}, arguments_of="train")
    assert all("\n" not in text for text in texts)
    document = override(Document("", {"train": {"name": "a.py:f"}}), texts)
    back = guess(document.values)["train"]["args"]
    assert back == {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}
    assert {k: type(v) for k, v in back.items() if not isinstance(v, list)} == {
        k: type(v) for k, v in values.items() if not isinstance(v, (list, tuple))
    }


def test_the_code_is_the_functions_file_and_what_it_imports_from_its_folder(tmp_path):
    folder = tmp_path
    (folder / "net.py").write_text("x = 0\n", "utf-8")
    deep = folder / "part" / "inner"
    deep.mkdir(parents=True)
    (folder / "part" / "__init__.py").write_text("from .inner.last import x\n", "utf-8")
    (deep / "last.py").write_text("x = 1\n", "utf-8")
    (folder / "unused.py").write_text("x = 2\n", "utf-8")
    code = "import torch, net\n\n\ndef train(run):\n    import part\n"
    (folder / "train.py").write_text(code, "utf-8")
    files = code_files(load_function("train.py:train", base=folder))
    names = {file.relative_to(folder).as_posix() for file in files}
    assert names == {"train.py", "net.py", "part/__init__.py", "part/inner/last.py"}
    assert files[0] == folder / "train.py"
    assert code_files(load_function("torch.optim:SGD")) == ()
