"""A Hugging Face training that was killed goes on as if it never had been."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

import stabexp
from stabexp import api
from stabexp.tracking import find_run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.usefixtures("nowhere", "no_uploader_left"),
]

CODE = """\
import os
import signal
from pathlib import Path

from integrations.transformers.lines import line
from transformers import TrainerCallback


class Killed(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 17 and Path("kill").exists():
            Path("kill").unlink()
            os.kill(os.getpid(), signal.SIGKILL)


def train(run):
    line(run, callbacks=[Killed()], max_steps=30, lr_scheduler_type="cosine", warmup_steps=4)
"""

START = """\
import stabexp
stabexp.run("own.py:train", root="runs", threads=1, checkpoint={"every": 5}, drain_seconds=0)
"""


def test_a_killed_run_goes_on_bit_by_bit(tmp_path):
    (tmp_path / "own.py").write_text(CODE)
    (tmp_path / "kill").touch()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(START)], env=environment, check=False
    )
    assert done.returncode == -9
    (folder,) = (tmp_path / "runs" / "runs").iterdir()
    assert len(find_run(folder.name, tmp_path / "runs").read_steps()) == 16  # before its record
    resumed = api.resume(folder.name, root=tmp_path / "runs", drain_seconds=0)
    assert resumed.status == "finished"
    assert resumed.steps == 30
    whole = stabexp.run(
        "own.py:train", root=tmp_path / "runs", threads=1, checkpoint={"every": 5}, drain_seconds=0
    )
    records = [
        find_run(run_id, tmp_path / "runs").read_steps()
        for run_id in (resumed.run_id, whole.run_id)
    ]
    assert [r.digest for r in records[0]] == [r.digest for r in records[1]]
    assert [r.sample_ids for r in records[0]] == [r.sample_ids for r in records[1]]
