"""Every code block of README.md and docs/ is run, or checked as far as it can be without."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from docs.snippets import ROOT, Block, blocks, check, check_command, commands, files, pages

from stabexp.config import parse_document
from stabexp.errors import ConfigError
from stabexp.experiment import Experiment, from_document, load
from stabexp.training import Run, execute

pytestmark = pytest.mark.usefixtures("no_uploader_left")

ELSEWHERE = {
    "docs/tutorial.md": "tests/docs_pages",
    "docs/how_to/": "tests/docs_pages",
    "docs/causes/": "tests/docs_pages",
    "docs/notebook.md": "tests/test_notebook.py",
}
"""Pages, or folders of them, that tests of their own run from end to end."""

MINIMAL = "name: x\n"
TRAINED = "train: train.py:train\n"
TASK = "task: mlp\noptimizer: {lr: 0.1}\n"

ALL = [block for page in pages() for block in blocks(page)]
RUN_PAGES = sorted({block.page for block in ALL if block.is_run})
LOOPS = [
    pytest.param(block, id=str(block))
    for block in ALL
    if block.kind == "python" and block.name and "\ndef train(run" in block.text
    if not block.page.startswith(tuple(ELSEWHERE)) and block.page not in RUN_PAGES
]


@pytest.mark.parametrize("page", pages())
def test_every_block_is_what_it_says(page):
    for block in blocks(page):
        if not block.is_left_out:
            check(block)


@pytest.mark.parametrize("page", sorted({b.page for b in ALL if b.kind == "yaml"}))
def test_yaml_fits_the_experiment_file(page, tmp_path):
    for name, text in files(page).items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, "utf-8")
    for block in blocks(page):
        if block.kind != "yaml" or block.is_left_out:
            continue
        values = yaml.safe_load(block.text)
        if isinstance(values, dict) and set(values) & set(Experiment.model_fields):
            whole = {"name", "task", "train"} & set(values)
            try:
                if block.name and Path("train.py").exists() == ("train" in values):
                    load(Path(block.name))
                else:
                    from_document(parse_document(_completed(block.text, whole)), base=tmp_path)
            except ConfigError as error:
                pytest.fail(f"{block}: {error}")


def _completed(text: str, there: set[str]) -> str:
    own = "" if there & {"task", "train"} else TASK
    return ("" if "name" in there else MINIMAL) + own + text


@pytest.mark.slow
@pytest.mark.parametrize("block", LOOPS)
@pytest.mark.filterwarnings("ignore")
def test_a_training_function_that_a_page_shows_trains(block):
    for name, text in files(block.page).items():
        Path(name).write_text(text, "utf-8")
    from stabexp.experiment import given, program

    made = program(given(f"{block.name}:train", ["steps=4"]).experiment, base=Path.cwd())
    records = []
    execute(made, Run(made.settings, on_step=records.append))
    assert len(records) == 4


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN_PAGES)
def test_a_page_that_is_run_goes_as_it_says(page, stabexp_command, monkeypatch, capsys):
    for name, text in files(page).items():
        Path(name).write_text(text, "utf-8")
    for block in blocks(page):
        if block.is_run:
            for command in commands(block.text):
                code, shown = _run(command, stabexp_command)
                wanted = command.code or 0
                assert code == wanted, f"{block}: {' '.join(command.words)}: {code}\n{shown}"
    for name in files(page):
        if name.startswith("test_"):
            for key, value in runpy.run_path(name).items():
                if key.startswith("test_"):
                    value()


def _run(command, stabexp_command):
    program, *arguments = command.words
    if command.environment:
        done = subprocess.run(
            [sys.executable, "-c", "from stabexp.cli import main; main()", *arguments],
            env={**os.environ, **command.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        code = done.returncode if done.returncode >= 0 else 128 - done.returncode
        return code, done.stdout + done.stderr
    if program == "stabexp":
        done = stabexp_command(*arguments)
        return done.code, done.out + done.errors
    assert program == "python"
    runpy.run_path(arguments[0], run_name="__main__")
    return 0, ""


def test_what_is_only_shown_says_why():
    left_out = [block for block in ALL if block.is_left_out]
    assert all(len(block.mark) > len("no, because ") for block in left_out)
    assert all(block.mark in {"", "run"} or block.is_left_out for block in ALL)


def test_what_is_run_elsewhere_is_run_somewhere():
    covered = [place for page, place in ELSEWHERE.items() if (ROOT / page).exists()]
    assert [place for place in covered if not (ROOT / place).exists()] == []


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        pytest.param("sh", "stabexp bisekt RUN_ID\n", id="a command that is not there"),
        pytest.param("sh", "stabexp bisect RUN_ID --thourough\n", id="an option that is not there"),
        pytest.param("sh", "stabexp run exp.yaml | stabexp lgo X\n", id="behind a pipe"),
        pytest.param("sh", "python -m experiments.nothing\n", id="a module that is not there"),
        pytest.param("console", "$ stabexp lgo X\nwhatever\n", id="in a transcript"),
        pytest.param("python", "stabexp.bisekt('x')\n", id="a function that is not there"),
        pytest.param("python", "stabexp.bisect('x', budjet=3)\n", id="an argument not there"),
        pytest.param("python", "from stabexp.records import Vredict\n", id="an import"),
        pytest.param("python", "def f(:\n", id="no Python"),
        pytest.param("json", '{"loss": NaN}\n', id="no JSON"),
        pytest.param("fortran", "END\n", id="a kind nobody checks"),
    ],
)
def test_a_block_is_refused_for(kind, text):
    with pytest.raises(AssertionError):
        check(Block("page.md", 1, kind, text, ""))


def test_an_ordinary_command_passes():
    check_command(("stabexp", "bisect", "RUN_ID", "--budget", "30m"), "page.md:1")
