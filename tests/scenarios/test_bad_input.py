"""Bad input: one message with place, value and remedy, the right exit code, nothing recorded."""

from __future__ import annotations

import shutil

import pytest

RAISING = """\
def train(run):
    raise RuntimeError("out of cheese")
"""


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param(None, "exp.yaml: no such file", id="missing"),
        pytest.param(b"", "exp.yaml: the file is empty", id="empty"),
        pytest.param(b"# later\n", "exp.yaml: the file is empty", id="only a comment"),
        pytest.param(b"\xff\xfe\x00", "exp.yaml: not UTF-8 text", id="not text"),
        pytest.param(b"name: [\n", "exp.yaml:2: not valid YAML", id="not YAML"),
        pytest.param(b"- a\n", "exp.yaml:1: expected keys and values, found a list", id="list"),
        pytest.param(
            b"name: a\nsteps: many\ntask: mlp\noptimizer: {name: sgd, lr: 1}\n",
            "exp.yaml:2: steps: expected a valid integer, found 'many'",
            id="wrong type",
        ),
        pytest.param(
            b"name: a\ntask: mpl\noptimizer: {name: sgd, lr: 1}\n",
            "exp.yaml:2: task: mpl: unknown task; did you mean 'mlp'?",
            id="unknown task",
        ),
        pytest.param(
            b"name: a\ntrain: gone.py:train\n", "exp.yaml:2: train: gone.py", id="no such file"
        ),
    ],
)
def test_an_experiment_file_that_cannot_be_used(cli, tmp_path, content, says):
    if content is not None:
        (tmp_path / "exp.yaml").write_bytes(content)
    done = cli("run", "exp.yaml")
    assert done.returncode == 2
    assert says in done.stderr
    assert not (tmp_path / "stabexp_runs").exists()


def test_a_directory_and_a_dangling_link_are_named_as_what_they_are(cli, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.yaml").symlink_to("nowhere.yaml")
    assert "folder: is a directory" in cli("run", "folder").stderr
    done = cli("run", "link.yaml")
    assert done.returncode == 2
    assert "link.yaml: a link to nowhere.yaml, which is not there" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["run"], id="nothing to run"),
        pytest.param(["run", "a.yaml", "--resume", "b"], id="both a file and a run"),
        pytest.param(["run", "a.yaml", "--wrong"], id="unknown option"),
        pytest.param(["bisect"], id="no run"),
        pytest.param(["bisect", "a", "--workers", "-1"], id="less than no worker"),
        pytest.param(["bisect", "a", "--variables", "lr"], id="unknown variable"),
        pytest.param(["list", "rnus"], id="unknown kind"),
        pytest.param(["nothing"], id="unknown command"),
    ],
)
def test_a_command_that_cannot_be_understood_exits_with_2(cli, arguments):
    done = cli(*arguments)
    assert done.returncode == 2
    assert done.stderr


def test_a_train_function_that_raises_ends_the_run_as_failed(cli, write, tmp_path):
    write("raising.py", RAISING)
    write("exp.yaml", "name: raising\nsteps: 5\ntrain: raising.py:train\n")
    done = cli("run", "exp.yaml")
    assert done.returncode == 1
    assert "raising.py:2: at step 0: RuntimeError: out of cheese" in done.stderr
    (directory,) = (tmp_path / "stabexp_runs" / "runs").iterdir()
    assert f"stabexp run --resume {directory.name}" in done.stderr
    refused = cli("bisect", directory.name)
    assert refused.returncode == 1
    assert "its training code raised an error before any divergence" in refused.stderr


@pytest.mark.parametrize("command", ["bisect", "log", "sync", "run --resume"])
def test_a_run_that_does_not_exist(cli, diverged, command):
    done = cli(*command.split(), "lateX", "--root", "root")
    assert done.returncode == 1
    assert "run lateX: not found in" in done.stderr
    assert diverged.name in done.stderr


def test_an_id_that_two_runs_begin_with_is_not_guessed(cli, diverged):
    shutil.copytree(diverged, diverged.with_name("late-copy"))
    done = cli("log", "late", "--root", "root")
    assert done.returncode == 1
    assert "run late: 2 runs begin so" in done.stderr


@pytest.mark.parametrize(
    ("file", "command"),
    [("run.json", "log"), ("divergence.json", "log"), ("source.json", "bisect")],
)
@pytest.mark.parametrize("content", ["{}", '{"a'], ids=["wrong", "torn"])
def test_a_damaged_record_is_named(cli, diverged, file, command, content):
    (diverged / file).write_text(content, "utf-8")
    done = cli(command, diverged.name, "--root", "root")
    assert done.returncode == 1
    assert str(diverged / file) in done.stderr
