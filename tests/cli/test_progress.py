"""Progress of real runs and bisects, as it stands in a log file."""

from __future__ import annotations

import re

import pytest

from stabexp.api.one_training import planned_steps
from stabexp.tracking import find_run

pytestmark = pytest.mark.usefixtures("no_uploader_left")

TRAINER = """\
import torch


def train(run, lr=0.1):
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    run.begin(model=model, optimizer=optimizer, total_steps={total})
    for _ in range(12):
        run.begin_step()
        with run.batch(torch.ones(4, 1)) as x:
            loss = model(x).square().mean()
            run.log(loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        run.end_step()
"""


@pytest.mark.parametrize(("total", "shown"), [(12, "1/12"), (None, "1")])
def test_a_trainer_that_knows_its_length_tells_it_and_the_rest_is_timed(
    stabexp_command, tmp_path, total, shown
):
    (tmp_path / "train.py").write_text(TRAINER.format(total=total), "utf-8")
    done = stabexp_command("run", "train.py:train", "-o", "threads=1")
    assert done.code == 0, done.errors
    steps = re.findall(r"step +(\S+)  loss", done.errors)
    assert steps[0] == shown
    assert (" left" in done.errors) is (total is not None)
    assert "steps/s" in done.errors
    assert planned_steps(find_run("train", "stabexp_runs")) == total


def test_a_bisect_says_at_each_question_what_is_known_and_what_is_left(stabexp_command, here):
    done = stabexp_command("bisect", "late", "--again", "--workers", "0", "--budget", "60")
    told = done.errors
    assert "onset at step 13, detected at 15; replays start at step 10" in told
    questions = re.findall(r"(?m)^\[ *[\d.]+ s\] .*\?$", told)
    assert len(questions) >= 2
    assert len(re.findall(r"(?m)^ +left: at most \d+ steps \(the budget\), about", told)) >= 2
    assert "ruled out: overfitting, implementation" in told
    assert "still possible: " in told
    assert re.search(r"(?m)^  00  control: nothing +diverged +from step 13, bit for bit$", told)
    assert "the budget of 60 steps is spent" in told


def test_a_bisect_that_goes_on_says_which_replays_were_finished_earlier(stabexp_command, here):
    stabexp_command("bisect", "late", "--again", "--workers", "0", "--budget", "12")
    verdicts = find_run("late", "root").path.glob("bisects/*/verdict.json")
    max(verdicts, key=lambda file: file.stat().st_mtime).unlink()
    done = stabexp_command("bisect", "late", "--workers", "0", "--budget", "12")
    assert "(finished earlier)" in " ".join(done.errors.split())
