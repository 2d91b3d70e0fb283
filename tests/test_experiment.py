"""The experiment file: what it means, and what is refused."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from stabexp.config import guess
from stabexp.errors import ConfigError
from stabexp.experiment import (
    flat,
    load,
    open_source,
    program,
    setup_of,
)
from stabexp.experiment.program import ENDLESS

GOOD = """\
name: a good one
task: {name: gpt, args: {width: 16, context: 16}}
optimizer:
  lr: 3e-4
schedule: cosine
clip: 1
"""


@pytest.fixture
def write(tmp_path):
    def to(text, name="exp.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return to


def test_a_small_file_means_what_it_says(write):
    experiment, _ = load(write(GOOD))
    assert experiment.optimizer.lr == 3e-4
    assert experiment.schedule.name == "cosine"
    assert experiment.clip == 1.0
    assert experiment.steps == 200
    settings = program(experiment, base=Path()).settings
    assert (settings.lr, settings.clip_norm, settings.precision) == (3e-4, 1.0, "fp32")
    assert settings.batch_size == experiment.batch.size


def stored_form(document, path):
    """Return what a run directory keeps of an experiment."""
    return json.loads(json.dumps(document.to_json() | {"base": str(path.parent)}))


@pytest.mark.parametrize("text", ["detectors: [non_finite, loss_spike]", "monitors: [layers]"])
def test_a_list_of_names_takes_them_with_their_defaults(write, text):
    experiment, _ = load(write(GOOD + text))
    (kind,) = yaml.safe_load(text)
    assert getattr(experiment, kind) == {name: {} for name in yaml.safe_load(text)[kind]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("stpes: 3", ":7: stpes: unknown key; did you mean 'steps'?", id="unknown key"),
        pytest.param(
            "train: own.py:train",
            ":7: train: is given beside task; remove one",
            id="task and train",
        ),
        pytest.param(
            "schedule2: x\nsteps: 0", ":8: steps: expected greater than or equal to 1", id="range"
        ),
        pytest.param("precision: fp8", ":7: precision: expected 'fp32', 'bf16', ", id="precision"),
        pytest.param("expect: magic", ":7: expect: expected 'learning_rate', ", id="expect"),
        pytest.param(
            "bisect: {variables: [moon]}",
            ":7: bisect.variables.0: expected 'learning_rate', 'warmup'",
            id="variable",
        ),
        pytest.param("clip: 0", ":7: clip: given twice (first on line 6)", id="duplicate"),
        pytest.param(
            "detectors:\n  loss_spik:",
            ":8: detectors.loss_spik: unknown detector; did you mean 'loss_spike'?",
            id="unknown detector",
        ),
        pytest.param(
            "detectors:\n  loss_spike:\n    windw: 5",
            ":9: detectors.loss_spike.windw: unknown key; did you mean 'window'?",
            id="detector argument",
        ),
        pytest.param(
            "detectors: 5", ":7: detectors: expected keys and values, found '5'", id="detectors"
        ),
        pytest.param(
            "detectors:\n  loss_spike: 5",
            ":8: detectors.loss_spike: expected keys and values, found '5'",
            id="arguments that are none",
        ),
        pytest.param(
            "monitors:\n  layer:", ":8: monitors.layer: unknown monitor; did you mean", id="monitor"
        ),
        pytest.param(
            "monitors:\n  layers:\n    every: 0",
            ":9: monitors.layers.every: expected greater than or equal to 1, found '0'",
            id="monitor argument",
        ),
        pytest.param(
            "interventions:\n  momentum: 1",
            ":8: interventions.momentum: unknown intervention; allowed: adam_eps, batch_size, ",
            id="intervention",
        ),
        pytest.param(
            "interventions:\n  learning_rate: -1",
            ":8: interventions.learning_rate.dose: expected greater than or equal to 0, found '-1'",
            id="dose",
        ),
        pytest.param(
            "interventions:\n  precision: fp8",
            ":8: interventions.precision.dose: expected 'fp32', ",
            id="precision as a dose",
        ),
    ],
)
def test_a_mistake_is_told_with_its_line_and_remedy(write, text, message):
    path = write(GOOD + text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert f"{path}{message}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "name: x\noptimizer: {}", ":1: task: is missing; add it, or train:", id="neither"
        ),
        pytest.param("task: gpt\noptimizer: {}", ":1: name: is missing; add it", id="no name"),
        pytest.param(
            "name: x\ntask: gpt", ":1: optimizer: is missing; a task needs one", id="optimizer"
        ),
        pytest.param(
            "name: a/b\ntask: gpt\noptimizer: {}", ":1: name: expected up to 80 letters", id="name"
        ),
        pytest.param(
            "name: x\ntrain: own.py:train\noptimizer:\n  lr: 1",
            ":3: optimizer: a train function builds its own optimizer; remove this section",
            id="optimizer beside a function",
        ),
        pytest.param(
            "name: x\ntask: gpt\noptimizer: {}\nschedule:\n  warmup_steps: 300",
            ":5: schedule.warmup_steps: 300 is not below steps (200)",
            id="warmup without end",
        ),
        pytest.param(
            "name: x\ntask: gpt\noptimizer: {name: sgd, betas: [0.9, 0.99]}",
            ":3: optimizer: betas belong to adam and adamw; for sgd set momentum",
            id="betas",
        ),
        pytest.param(
            "name: x\noptimizer: {}\ntask: gptt",
            ":3: task: gptt: unknown task; did you mean 'gpt'?",
            id="unknown task",
        ),
        pytest.param(
            "name: x\noptimizer: {}\ntask:\n  name: gpt\n  args:\n    widht: 4",
            ":6: task.args.widht: unknown key; did you mean 'width'?",
            id="task argument",
        ),
        pytest.param(
            "name: x\noptimizer: {}\ntask:\n  name: gpt\n  args: {width: 30}",
            ":5: task.args: heads 4 does not divide width 30",
            id="task arguments that do not fit together",
        ),
        pytest.param(
            "name: x\ntrain: own.py:tain",
            ":2: train: own.py:tain: no 'tain' in own.py; did you",
            id="function",
        ),
        pytest.param(
            "name: x\ntrain: onw.py:train", ":2: train: onw.py:train: no such file ", id="file"
        ),
        pytest.param(
            "name: x\ntrain:\n  name: own.py:train\n  args: {decy: 3}",
            ":4: train.args: got an unexpected keyword argument 'decy'; it is train(run, decay",
            id="function argument",
        ),
        pytest.param(
            "name: x\ntrain: broken.py:train",
            ":2: train: broken.py:train: {folder}/broken.py:2: ZeroDivisionError: division by zero",
            id="a file that raises",
        ),
    ],
)
def test_a_file_that_does_not_make_sense_is_refused(write, text, message):
    write("def train(run, decay=0.9): pass\n", "own.py")
    write("x = 1\nx / 0\n", "broken.py")
    path = write(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert f"{path}{message.format(folder=path.parent)}" in str(caught.value)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        (
            "optimizer.lr=-1",
            "-o optimizer.lr=-1: optimizer.lr: expected greater than 0, found '-1'",
        ),
        ("task.args.widht=3", "-o task.args.widht=3: task.args.widht: unknown key; did you mean"),
        ("task=gptt", "-o task=gptt: task: gptt: unknown task; did you mean 'gpt'?"),
        (
            "detectors.loss_spike.windw=3",
            "-o detectors.loss_spike.windw=3: detectors.loss_spike.windw",
        ),
        (
            "schedule.warmup_steps=200",
            "-o schedule.warmup_steps=200: schedule.warmup_steps: 200 is",
        ),
    ],
)
def test_a_wrong_override_is_told_as_it_was_typed(write, assignment, message):
    with pytest.raises(ConfigError) as caught:
        load(write(GOOD), [assignment])
    assert str(caught.value).startswith(message)


def test_overrides_reach_every_section(write):
    assignments = [
        "steps=7",
        "optimizer.lr=1e-2",
        "task.args.layers=1",
        "monitors.half_range.every=2",
        "interventions.learning_rate=0.5",
        "clip=null",
    ]
    experiment, _ = load(write(GOOD), assignments)
    made = program(experiment, base=Path())
    assert made.settings.steps == 7
    assert made.settings.clip_norm is None
    assert "half_range" in made.settings.monitors
    assert float(made.settings.interventions["learning_rate"]) == 0.5
    assert made.describe()["args"]["layers"] == 1


def test_a_functions_arguments_are_guessed_and_quoted_ones_stay_text(write):
    write("def train(run, **given): pass\n", "own.py")
    arguments = "{a: 3e-4, b: '1', c: on, d: [1, ~], e: true}"
    path = write(f"name: x\ntrain:\n  name: own.py:train\n  args: {arguments}\n")
    experiment, document = load(path)
    expected = {"a": 3e-4, "b": "1", "c": "on", "d": [1, None], "e": True}
    assert guess(experiment.train.args) == expected
    stored = stored_form(document, path)
    again, base = open_source(stored)
    assert guess(again.train.args) == expected
    assert again == experiment
    assert base == path.parent


def test_a_stored_experiment_can_be_patched_with_a_fix(write):
    path = write(GOOD)
    experiment, document = load(path)
    stored = stored_form(document, path)
    patched, _ = open_source(stored, {"schedule.warmup_steps": 25, "optimizer.lr": 1e-4})
    assert patched.schedule.name == "cosine"
    assert patched.schedule.warmup_steps == 25
    assert patched.optimizer.lr == 1e-4
    assert open_source(stored)[0] == experiment
    with pytest.raises(ConfigError, match=r"patch: optimizer.lr: expected greater than 0"):
        open_source(stored, {"optimizer.lr": 0})


def test_the_digest_depends_on_what_decides_the_training_alone(write):
    base, _ = load(write(GOOD))
    for assignment, same in {
        "description=other": True,
        "name=other": True,
        "bisect.workers=1": True,
        "tracking.experiment=x": True,
        "seed=1": False,
        "optimizer.lr=1": False,
        "precision=bf16": False,
        "task.args.width=8": False,
    }.items():
        other, _ = load(write(GOOD), [assignment])
        assert (other.digest() == base.digest()) is same, assignment


OWN = "name: x\ntrain: own.py:train\n"
SEEN = {
    "steps": 640,
    "lr": 0.3,
    "warmup_steps": 12,
    "weight_decay": 0.1,
    "clip_norm": 2.0,
    "precision": "bf16",
    "micro_batch": 8,
    "accumulate": 4,
}


def test_a_task_has_a_length_and_a_function_goes_on_as_long_as_it_does(write):
    write("def train(run): pass\n", "own.py")
    assert load(write(GOOD + "steps: null"))[0].steps == 200
    assert load(write(OWN))[0].steps is None
    assert load(write(OWN), ["steps=7"])[0].steps == 7
    assert program(load(write(OWN))[0], base=write(OWN).parent).settings.steps is None
    assert load(write(OWN + "schedule: {warmup_steps: 300}"))[0].schedule.warmup_steps == 300


@pytest.mark.parametrize(
    ("text", "observed", "expected"),
    [
        pytest.param(OWN, SEEN, SEEN | {"batch_size": 32}, id="only what was seen is known"),
        pytest.param(OWN + "steps: 9", SEEN, {"steps": 9}, id="a length that was asked for"),
        pytest.param(OWN + "clip: 1", SEEN, {"clip_norm": 1.0}, id="the lower clip norm decides"),
        pytest.param(OWN + "clip: 3", SEEN, {"clip_norm": 2.0}, id="also when it is the loop's"),
        pytest.param(
            OWN + "interventions: {clip_norm: 0.5, warmup: 40, batch_size: 2}",
            SEEN,
            {"clip_norm": 0.5, "warmup_steps": 40, "micro_batch": 8},
            id="interventions",
        ),
        pytest.param(
            OWN + "batch: {size: 5, accumulate: 2}\ninterventions: {batch_size: 3}",
            {"clip_norm": None},
            {"batch_size": 30, "micro_batch": 15, "clip_norm": None, "lr": None, "steps": ENDLESS},
            id="nothing was seen",
        ),
        pytest.param(
            GOOD, SEEN, {"lr": 3e-4, "steps": 200, "clip_norm": 1.0, "batch_size": 32}, id="a task"
        ),
    ],
)
def test_what_a_loop_was_seen_to_do_fills_what_its_file_does_not_say(
    write, text, observed, expected
):
    write("def train(run): pass\n", "own.py")
    found = asdict(setup_of(load(write(text))[0], observed=observed))
    wanted = {key: value for key, value in expected.items() if key != "accumulate"}
    assert {key: found[key] for key in wanted} == wanted


def test_flat_names_are_dotted_and_leave_out_what_is_none(write):
    found = flat(load(write(GOOD))[0])
    assert found["optimizer.lr"] == 3e-4
    assert found["schedule.name"] == "cosine"
    assert "name" not in found
    assert not any(value is None for value in found.values())
