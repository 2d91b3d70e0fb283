"""The experiment file: what it means, what is refused, and what its schema tells an editor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from stabexp import experiment as experiments
from stabexp.config import Settings, guess, parse_document, read_document
from stabexp.errors import ConfigError
from stabexp.experiment import (
    Experiment,
    flat,
    from_document,
    load,
    open_source,
    program,
)
from stabexp.schema import KINDS, catalogue, experiment_schema

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
            ":8: interventions.momentum: unknown intervention; allowed: batch_size, clip_norm, ",
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


def test_flat_names_are_dotted_and_leave_out_what_is_none(write):
    found = flat(load(write(GOOD))[0])
    assert found["optimizer.lr"] == 3e-4
    assert found["schedule.name"] == "cosine"
    assert "name" not in found
    assert not any(value is None for value in found.values())


def test_every_field_of_the_file_is_documented():
    kinds = [
        kind
        for kind in vars(experiments).values()
        if isinstance(kind, type) and issubclass(kind, Settings)
    ]
    fields = {f"{k.__name__}.{name}": info for k in kinds for name, info in k.model_fields.items()}
    assert len(fields) > 30
    assert [name for name, info in fields.items() if not info.description] == []


def test_the_schema_knows_every_key_and_plug_in():
    schema = experiment_schema()
    json.dumps(schema)
    assert set(schema["properties"]) == set(Experiment.model_fields)
    assert schema["additionalProperties"] is False
    assert "name" in schema["required"]
    detectors = schema["properties"]["detectors"]["anyOf"]
    assert {"loss_spike", "non_finite", "divergence"} <= set(detectors[0]["items"]["enum"])
    assert set(detectors[1]["properties"]) == set(detectors[0]["items"]["enum"])
    assert detectors[1]["additionalProperties"] is False
    assert schema["properties"]["interventions"]["propertyNames"]["enum"]
    for short in ("task", "train", "schedule"):
        assert {"type": "string"} in schema["properties"][short]["anyOf"]


REFUSED = {
    "unknown key": {"stpes": 3},
    "no such task shape": {"task": ["gpt"]},
    "unknown detector": {"detectors": {"loss_spik": {}}},
    "detector argument": {"detectors": {"loss_spike": {"windw": 3}}},
    "unknown monitor": {"monitors": ["layer"]},
    "monitor range": {"monitors": {"layers": {"every": 0}}},
    "unknown intervention": {"interventions": {"momentum": 1}},
    "range": {"steps": 0},
    "choice": {"precision": "fp8"},
    "deep key": {"batch": {"sze": 3}},
}
ACCEPTED = {
    "short forms": {"task": "gpt", "schedule": "cosine"},
    "names alone": {"detectors": ["loss_spike"], "monitors": ["layers"]},
    "arguments": {"detectors": {"loss_spike": {"window": 9}, "non_finite": None}},
    "doses": {"interventions": {"learning_rate": 0.5, "precision": "fp32"}},
    "nulls": {"clip": None, "threads": None, "expect": None},
}
PLAIN = {"name": "x", "task": {"name": "gpt"}, "optimizer": {"lr": 0.1}}


@pytest.mark.parametrize("case", REFUSED)
def test_schema_and_reader_refuse_the_same(case):
    values = {**PLAIN, **REFUSED[case]}
    assert not _fits(values, experiment_schema())
    with pytest.raises(ConfigError):
        from_document(parse_document(yaml.safe_dump(values)))


@pytest.mark.parametrize("case", ACCEPTED)
def test_schema_and_reader_accept_the_same(case):
    values = {**PLAIN, **ACCEPTED[case]}
    assert _fits(values, experiment_schema())
    from_document(parse_document(yaml.safe_dump(values)))


def test_the_example_experiments_fit_the_schema():
    folder = Path(__file__).parents[1] / "experiments"
    schema = experiment_schema()
    for path in folder.glob("*.yaml"):
        values = guess(read_document(path).values)
        assert _fits(values, schema), path.name
        load(path)


def _fits(value, schema, root=None):
    """Check a value against the JSON-schema keywords that pydantic writes."""
    root = root or schema
    if "$ref" in schema:
        schema = {**root["$defs"][schema["$ref"].rpartition("/")[2]], **schema}
        del schema["$ref"]
    checks = {
        "anyOf": lambda options: any(_fits(value, option, root) for option in options),
        "allOf": lambda options: all(_fits(value, option, root) for option in options),
        "enum": lambda allowed: value in allowed,
        "const": lambda only: value == only,
        "type": lambda kind: _is(value, kind),
        "minimum": lambda low: not _is(value, "number") or value >= low,
        "exclusiveMinimum": lambda low: not _is(value, "number") or value > low,
        "maximum": lambda high: not _is(value, "number") or value <= high,
        "exclusiveMaximum": lambda high: not _is(value, "number") or value < high,
        "required": lambda names: not isinstance(value, dict) or set(names) <= set(value),
        "items": lambda inner: (
            not isinstance(value, list) or all(_fits(item, inner, root) for item in value)
        ),
        "propertyNames": lambda inner: (
            not isinstance(value, dict) or all(_fits(key, inner, root) for key in value)
        ),
        "properties": lambda known: (
            not isinstance(value, dict)
            or all(_fits(value[key], known[key], root) for key in value.keys() & known.keys())
        ),
        "additionalProperties": lambda rest: (
            not isinstance(value, dict)
            or all(
                rest is True or (rest is not False and _fits(item, rest, root))
                for key, item in value.items()
                if key not in schema.get("properties", {})
            )
        ),
    }
    return all(check(schema[key]) for key, check in checks.items() if key in schema)


def _is(value, kind):
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "boolean": bool,
        "null": type(None),
        "integer": int,
        "number": (int, float),
    }
    return isinstance(value, kinds[kind]) and (kind == "boolean" or not isinstance(value, bool))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "runs"])
def test_the_catalogue_documents_every_plug_in_and_argument(kind):
    lines = list(catalogue(kind))
    assert lines
    assert all(not line.rstrip().endswith(":") for line in lines)


def test_an_unknown_kind_of_catalogue_is_refused():
    with pytest.raises(ConfigError, match=r"list detector: unknown kind; did you mean 'detectors'"):
        list(catalogue("detector"))
