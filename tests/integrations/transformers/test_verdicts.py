"""Trainings with Hugging Face's Trainer that diverge are bisected to the fault that was seeded.

The other seven: `python -m experiments.trainers.verify hugging_face`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import stabexp

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.usefixtures("nowhere", "no_uploader_left"),
]

FILE = Path(__file__).parents[3] / "experiments" / "trainers" / "hugging_face.py"


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        pytest.param("trainer", "clip", id="Trainer, bursts and no clipping"),
        pytest.param("adapters", "bad_sample", id="PEFT, a broken sample"),
    ],
)
def test_the_verdict_is_the_seeded_fault(hugging_face, tmp_path, function, fault):
    run = stabexp.run(
        f"{FILE}:{function}",
        root=tmp_path,
        args={"fault": fault},
        threads=1,
        checkpoint={"every": 10, "keep": 20},
        drain_seconds=0,
    )
    assert run.status == "diverged"
    verdict = stabexp.bisect(run.run_id, root=tmp_path, workers=0, drain_seconds=0)
    assert verdict.cause == hugging_face.VERDICTS[fault]
    assert verdict.confidence > 0.8
    if fault == "bad_sample":
        assert str(hugging_face.BROKEN) in verdict.summary


def test_a_healthy_training_breaks_no_rule(tmp_path):
    run = stabexp.run(
        f"{FILE}:trainer", root=tmp_path, args={"max_steps": 60}, threads=1, drain_seconds=0
    )
    assert run.status == "finished"
    assert run.steps == 60
    checked = stabexp.check(run.run_id, root=tmp_path, drain_seconds=0)
    assert "Nothing was found that is wrong" in checked.summary
