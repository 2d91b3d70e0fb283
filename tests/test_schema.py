"""What the schema of the experiment file tells an editor, and the catalogue a person."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from stabexp import experiment as experiments
from stabexp.config import Settings, guess, parse_document, read_document
from stabexp.errors import ConfigError
from stabexp.experiment import Experiment, from_document, load
from stabexp.schema import KINDS, catalogue, experiment_schema


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
    names = detectors[0]["items"]["anyOf"][0]["enum"]
    assert {"loss_spike", "non_finite", "divergence"} <= set(names)
    assert list(detectors[1]["properties"]) == names
    assert schema["properties"]["interventions"]["propertyNames"]["anyOf"][0]["enum"]
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
        "pattern": lambda pattern: not _text(value) or re.search(pattern, value) is not None,
        "type": lambda kind: any(_is(value, one) for one in ([kind] if _text(kind) else kind)),
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


def _text(value):
    return isinstance(value, str)


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
