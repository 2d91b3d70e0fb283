"""What a program reads: one strict document on stdout, whatever else is printed or goes wrong."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from stabexp.cli.json_output import strict
from stabexp.records import StepRecord

NOISY = """\
import os, subprocess, sys
import torch


def train(run, lr=0.1):
    print("printed by the training")
    os.write(1, b"written past Python\\n")
    subprocess.run([sys.executable, "-c", "print('printed by a process')"], check=True)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    data = torch.utils.data.TensorDataset(torch.ones(8, 1))
    for (x,) in run.steps(data, model=model, optimizer=optimizer, batch_size=4):
        loss = model(x).square().mean()
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
pytestmark = pytest.mark.usefixtures("no_uploader_left")


def test_numbers_that_are_none_are_written_as_in_the_records():
    record = StepRecord(step=0, time=0.0, loss=math.nan, lr=math.inf, grad_norm=-math.inf)
    written = strict(record)
    assert (written["loss"], written["lr"], written["grad_norm"]) == ("nan", "inf", "-inf")
    json.dumps(written, allow_nan=False)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (Path("a/b"), "a/b"),
        ((1, 2.5), [1, 2.5]),
        ({1: {"x"}}, {"1": ["x"]}),
        (True, True),
        (None, None),
    ],
)
def test_plain_values_have_one_form(value, written):
    assert strict(value) == written


def test_a_value_without_a_form_is_an_error_of_ours():
    with pytest.raises(TypeError, match="object has no form in JSON"):
        strict(object())


def test_what_a_training_prints_goes_elsewhere(tmp_path):
    (tmp_path / "train.py").write_text(NOISY, "utf-8")
    command = [sys.executable, "-m", "stabexp.cli", "run", "train.py:train", "-o", "steps=3"]
    uri = ["-o", "tracking.uri=http://127.0.0.1:9", "-o", "threads=1"]
    done = subprocess.run(
        [*command, *uri, "--json", "-q"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 3
    for source in ("by the training", "written past Python", "by a process"):
        assert source in done.stderr


ERRORS = [
    pytest.param(("log", "nobody"), 1, "RunNotFoundError", "nobody", id="no such run"),
    pytest.param(("run", "missing.yaml"), 2, "ConfigError", "missing.yaml", id="no such file"),
    pytest.param(("run",), 2, "ConfigError", "give an experiment file", id="nothing given"),
    pytest.param(("log",), 2, "MissingParameter", "run_id", id="usage: an argument is missing"),
    pytest.param(("log", "--rot", "x", "y"), 2, "NoSuchOption", "--rot", id="usage: an option"),
    pytest.param(("lok",), 2, "UsageError", "lok", id="usage: a command"),
]


@pytest.mark.parametrize(("arguments", "code", "kind", "said"), ERRORS)
def test_an_error_is_a_document_too_and_a_line_for_people(
    stabexp_command, arguments, code, kind, said
):
    done = stabexp_command(*arguments, "--json")
    told = json.loads(done.out)["error"]
    assert (done.code, told["exit_code"], told["type"]) == (code, code, kind)
    assert said in told["message"]
    assert done.errors.startswith("error: ")
    assert said in done.errors
    assert stabexp_command(*arguments).out == ""


def test_an_error_of_the_system_is_a_document(stabexp_command, here):
    (here / "file").touch()
    done = stabexp_command("run", "calm.yaml", "--root", "file", "--json")
    told = json.loads(done.out)["error"]
    assert told["exit_code"] == done.code == 1
    assert str(here / "file") in told["message"]


def test_an_interruption_is_a_document(stabexp_command, here, monkeypatch):
    from stabexp import api

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "bisect", interrupted)
    done = stabexp_command("bisect", "late", "--json")
    told = json.loads(done.out)["error"]
    assert (done.code, told["exit_code"], told["type"]) == (130, 130, "Interrupted")
    assert "the same command goes on from there" in told["message"]
    assert done.errors.splitlines()[-1].startswith("interrupted")


def test_a_mistake_of_ours_is_a_document_and_a_traceback(monkeypatch, capsys):
    from stabexp import api, cli

    def broken(*args, **kwargs):
        raise RuntimeError("no such luck")

    monkeypatch.setattr(api, "load", broken)
    monkeypatch.setattr("sys.argv", ["stabexp", "log", "x", "--json"])
    with pytest.raises(RuntimeError):
        cli.main()
    told = json.loads(capsys.readouterr().out)["error"]
    assert told == {"type": "RuntimeError", "message": "no such luck", "exit_code": 1}


def test_a_reader_that_has_gone_is_no_traceback(here):
    command = f"{sys.executable} -m stabexp.cli list detectors | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""
