"""A page is followed to the letter, and where it does not work, the place is named."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.pages.following import Follower, WentWrong, clean_environment
from experiments.pages.markdown import Command
from experiments.pages.newcomer import main
from experiments.pages.transcripts import filled

ROOT = Path(__file__).parents[2]
HERE = Path(sys.executable).parent
RIGHT = """\
# Train

```python
# train.py
import torch
from torch import nn
from torch.utils.data import TensorDataset


def train(run, lr=0.02):
    x = torch.randn(128, 8)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for inputs, targets in run.steps(
        TensorDataset(x, x[:, :1]), model=model, optimizer=optimizer
    ):
        loss = nn.functional.mse_loss(model(inputs), targets)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
```

```sh
stabexp run train.py:train -o steps=40 -o tracking.upload=false
```
"""

AT = RIGHT.splitlines().index("stabexp run train.py:train -o steps=40 -o tracking.upload=false") + 1


@pytest.fixture
def follower(tmp_path) -> Follower:
    path = f"{HERE}{os.pathsep}{os.environ['PATH']}"
    return Follower(tmp_path, environment=clean_environment(path), seconds=60)


def newcomer(page: str, tmp_path: Path, *options: str) -> int:
    file = tmp_path / "page.md"
    file.write_text(page, "utf-8")
    return main([str(file), "--folder", str(tmp_path / "empty"), *options])


@pytest.fixture
def _our_environment(monkeypatch):
    """The commands find this interpreter's stabexp first, as in an activated environment."""
    monkeypatch.setenv("PATH", f"{HERE}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.usefixtures("_our_environment")
def test_a_page_that_trains_to_its_end_is_good(tmp_path, capfd):
    assert newcomer(RIGHT, tmp_path) == 0
    assert re.search(rf"page.md:{AT}: .*trained to its end, loss 0\.\d+", capfd.readouterr().out)
    assert (tmp_path / "empty" / "stabexp_runs" / "runs").is_dir()


BROKEN = [
    pytest.param(
        RIGHT.replace("train.py:train", "train.py:trian"),
        f"page.md:{AT}: stabexp run train.py:trian .*: exit code 2, where the page says 0",
        id="a wrong command",
    ),
    pytest.param(
        RIGHT.replace("# train.py\n", ""),
        f"page.md:{AT - 1}: stabexp run train.py:train .*: exit code 2, where the page says 0",
        id="a missing file",
    ),
    pytest.param(
        RIGHT.replace("upload=false", "upload=false  # exit code 3: it diverged"),
        f"page.md:{AT}: .*: exit code 0, where the page says 3",
        id="another exit code",
    ),
    pytest.param(
        RIGHT.replace("stabexp run", "echo stabexp run"), "has no stabexp run", id="no training"
    ),
    pytest.param(
        RIGHT.rstrip("`\n"), f"page.md:{AT - 1}: this block has no end", id="an open block"
    ),
]


@pytest.mark.usefixtures("_our_environment")
@pytest.mark.parametrize(("page", "place"), BROKEN)
def test_a_broken_page_fails_with_the_place(page, place, tmp_path, capfd):
    assert newcomer(page, tmp_path) == 1
    assert re.search(place, capfd.readouterr().err)


def typed(tmp_path: Path, page: str, capfd) -> str:
    """Follow a page whose `stabexp` is a word that prints what it is told; return the complaint."""
    stub = tmp_path / "stabexp"
    stub.write_text('#!/bin/sh\nshift\nprintf "%b\\n" "$*"\n', "utf-8")
    stub.chmod(0o755)
    os.environ["PATH"] = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    newcomer(page, tmp_path)
    return capfd.readouterr().err


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        pytest.param("```sh\nstabexp run loss nan\n```\n", "printed no finite loss", id="nan"),
        pytest.param("```sh\nstabexp run fine\n```\n", "printed no finite loss", id="no loss"),
        pytest.param(
            "```sh\nstabexp log '  └─ data'\nstabexp run loss 1\n```\n\n"
            "```console\n  └─ warmup\n```\n",
            "page.md:7: the page shows warmup; data was named here",
            id="another cause",
        ),
        pytest.param("```sh\nstabexp run loss 1\n```\n", "", id="a loss"),
    ],
)
def test_what_a_page_shows_must_be_what_is_printed(page, complaint, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("PATH", os.environ["PATH"])
    said = typed(tmp_path, page, capfd)
    assert complaint in said if complaint else said == ""


def test_a_folder_that_is_not_empty_is_refused(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "old").touch()
    with pytest.raises(SystemExit, match="2"):
        newcomer(RIGHT, tmp_path)
    assert "is not empty" in capsys.readouterr().err


def test_the_script_needs_nothing_but_python(tmp_path):
    file = tmp_path / "page.md"
    file.write_text("```sh\npip install nothing\necho $HOME\n```\n", "utf-8")
    done = subprocess.run(
        [ROOT / ".ci" / "newcomer", file, "--folder", tmp_path / "empty"],
        env={"PATH": os.environ["PATH"], "PYTHON": f"{sys.executable} -I"[:-3], "HOME": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "left out: pip install" in done.stdout
    assert "the page has no stabexp run" in done.stderr


def test_commands_remember_folder_and_variables(follower, tmp_path):
    follower.type(Command(1, "mkdir inner && cd inner && export NAME='a b'"))
    done = follower.type(Command(2, 'echo "$NAME"; pwd'))
    assert done.out == f"a b\n{tmp_path}/inner\n"
    assert follower.here == tmp_path / "inner"


def test_a_command_that_stays_is_visited_and_stopped(follower):
    serve = (
        f"{sys.executable} -u -c \"import http.server as h; s = h.HTTPServer(('127.0.0.1', 0), "
        "h.SimpleHTTPRequestHandler); print(f'http://127.0.0.1:{s.server_port}'); "
        's.serve_forever()"'
    )
    done = follower.type(Command(1, serve, 0, True))
    assert '"GET / HTTP/1.1" 200' in done.errors


def test_a_command_that_stays_and_shows_no_address_is_an_error(follower):
    with pytest.raises(WentWrong, match=r"^7: true: showed no address"):
        follower.type(Command(7, "true", 0, True))


def test_a_command_that_takes_too_long_is_ended(tmp_path):
    slow = Follower(tmp_path, environment=dict(os.environ), seconds=0.2)
    with pytest.raises(WentWrong, match=r"^3: sleep 60: took too long"):
        slow.type(Command(3, "sleep 60"))


def test_output_is_filled_in_without_progress_and_without_the_folder(follower, tmp_path):
    page = (
        "```sh\necho out; echo progress >&2; "
        "printf 'warning: w\\n         more\\n  step 1\\n' >&2; echo $PWD/file\n```\n\n"
        "```console\nold\n```\n\nprose\n\n```sh\necho 1\necho 2\n```\n\n```console\n```\n"
    )
    text, done = filled(page, follower)
    assert "```console\nwarning: w\n         more\nout\nfile\n```\n\nprose" in text
    assert text.endswith("```console\n$ echo 1\n1\n$ echo 2\n2\n```\n")
    assert [one.command.line for one in done] == [2, 12, 13]
    assert str(tmp_path) not in text
