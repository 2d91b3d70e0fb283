"""Every experiment gets the verdict it is known to deserve."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

import stabexp
from stabexp import api

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
FILES = sorted(EXPERIMENTS.glob("*.yaml"))


def test_the_set_covers_every_variable_several_tasks_a_healthy_and_an_unreproducible_run():
    loaded = [yaml.safe_load(file.read_text("utf-8")) for file in FILES]
    expected = [experiment["expect"] for experiment in loaded]
    faults = [cause for cause in expected if cause not in {"healthy", "not_reproduced"}]
    tasks = {
        experiment["task"] if isinstance(experiment["task"], str) else experiment["task"]["name"]
        for experiment in loaded
    }
    assert len(faults) >= 8
    assert set(faults) >= {"learning_rate", "warmup", "clip_norm", "precision", "batch_size"}
    assert "healthy" in expected
    assert "not_reproduced" in expected
    assert len(tasks) >= 3


def test_the_demo_is_one_of_the_experiments():
    demo = Path(stabexp.__file__).parent / "demo" / "unclipped_bursts.yaml"
    assert demo.read_text("utf-8") == (EXPERIMENTS / demo.name).read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_verdict_is_the_known_one(file, tmp_path):
    # On one seed; `python -m experiments.verify` runs three.
    os.chdir(EXPERIMENTS)
    result = api.run(file, root=tmp_path, drain_seconds=0)
    expected = api.load(result.run_id, root=tmp_path).experiment.expect
    if expected == "healthy":
        assert result.status == "finished"
        return
    verdict = api.bisect(result.run_id, root=tmp_path, workers=0, drain_seconds=0)
    assert verdict.cause == expected, verdict.summary
    if verdict.fix:
        assert verdict.fix_proved
    assert verdict.path[0].node == "control"
