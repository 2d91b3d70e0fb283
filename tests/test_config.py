"""YAML in, typed objects out: the types people meant, and errors that name the place."""

from __future__ import annotations

from typing import Literal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from stabexp.config import (
    Component,
    Document,
    Settings,
    override,
    parse_document,
    patched,
    read_document,
    suggest,
    validate,
)
from stabexp.errors import ConfigError
from stabexp.plugins import component


class Inner(Settings):
    rate: float = 1.0
    count: int = Field(1, ge=1)
    on: bool = False
    name: str = ""
    limit: float | None = None
    kind: Literal["a", "b"] = "a"
    pair: tuple[float, float] = (0.0, 0.0)


class Outer(Settings):
    inner: Inner = Inner()
    needed: int = 0
    either: float | int | Literal["auto"] = 1


def read(text: str, kind: type[Settings] = Inner):
    return validate(kind, parse_document(text, name="exp.yaml"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("rate: 3e-4", {"rate": 3e-4}, id="exponent without a point, text in YAML 1.1"),
        pytest.param("rate: 1e5", {"rate": 1e5}, id="exponent without a sign"),
        pytest.param("rate: .5", {"rate": 0.5}, id="no leading zero"),
        pytest.param("rate: '3e-4'", {"rate": 3e-4}, id="quoted number"),
        pytest.param("rate: 2", {"rate": 2.0}, id="whole number for a float"),
        pytest.param("count: 010", {"count": 10}, id="leading zero, 8 in YAML 1.1"),
        pytest.param("count: 1_000", {"count": 1000}, id="underscore"),
        pytest.param("count: '7'", {"count": 7}, id="quoted whole number"),
        pytest.param("name: on", {"name": "on"}, id="text on, true in YAML 1.1"),
        pytest.param("name: no", {"name": "no"}, id="text no, false in YAML 1.1"),
        pytest.param("name: 12:30", {"name": "12:30"}, id="text 12:30, 750 in YAML 1.1"),
        pytest.param("name: 010", {"name": "010"}, id="text 010"),
        pytest.param("name: 1.10", {"name": "1.10"}, id="text 1.10"),
        pytest.param("name: 2026-01-05", {"name": "2026-01-05"}, id="text that is a date"),
        pytest.param("name: null-model", {"name": "null-model"}, id="text with null in it"),
        pytest.param("on: on", {"on": True}, id="on for a switch"),
        pytest.param("on: No", {"on": False}, id="No for a switch"),
        pytest.param("on: true", {"on": True}, id="true for a switch"),
        pytest.param("limit: null", {"limit": None}, id="null"),
        pytest.param("limit: ~", {"limit": None}, id="tilde"),
        pytest.param("limit:", {"limit": None}, id="nothing"),
        pytest.param("limit: 1e-3", {"limit": 1e-3}, id="number where null is allowed"),
        pytest.param("pair: [9e-1, 1]", {"pair": (0.9, 1.0)}, id="list of numbers"),
        pytest.param("name: |\n  1\n", {"name": "1\n"}, id="block of text"),
    ],
)
def test_the_declared_type_decides_what_a_scalar_is(text, expected):
    found = read(text)
    assert {key: getattr(found, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "inner:\n  rat: 1",
            "exp.yaml:2: inner.rat: unknown key; did you mean 'rate'?",
            id="near",
        ),
        pytest.param(
            "zzz: 1", "exp.yaml:1: zzz: unknown key; allowed: either, inner, needed", id="far"
        ),
        pytest.param(
            "needed: many", "exp.yaml:1: needed: expected a valid integer, found 'many'", id="type"
        ),
        pytest.param(
            "needed:", "exp.yaml:1: needed: expected a valid integer, found nothing", id="null"
        ),
        pytest.param(
            "inner:\n  limit: on",
            "exp.yaml:2: inner.limit: expected a valid number, found 'on'",
            id="on for a number",
        ),
        pytest.param(
            "inner:\n  rate: 12:30",
            "exp.yaml:2: inner.rate: expected a valid number, found '12:30'",
            id="a time for a number",
        ),
        pytest.param(
            "inner:\n  rate: .nan", "exp.yaml:2: inner.rate: expected a ", id="NaN for a number"
        ),
        pytest.param(
            "inner:\n  count: 0",
            "exp.yaml:2: inner.count: expected greater than or equal to 1, found '0'",
            id="range",
        ),
        pytest.param(
            "inner:\n  kind: c",
            "exp.yaml:2: inner.kind: expected 'a' or 'b', found 'c'",
            id="choice",
        ),
        pytest.param(
            "inner: 3", "exp.yaml:1: inner: expected keys and values, found '3'", id="not a section"
        ),
        pytest.param(
            "inner:\n  pair: [1, x]",
            "exp.yaml:2: inner.pair.1: expected a valid number, found 'x'",
            id="in a list",
        ),
        pytest.param(
            "either: [1]",
            "exp.yaml:1: either: expected a valid number or a valid integer or 'auto', found ['1']",
            id="one of several types, in one line",
        ),
        pytest.param(
            "inner:\n  kind: c\n\n  rat: 2",
            "exp.yaml:2: inner.kind: expected 'a' or 'b', found 'c'\n"
            "exp.yaml:4: inner.rat: unknown key; did you mean 'rate'?",
            id="every mistake at once",
        ),
        pytest.param(
            "name: " + "x" * 200, "exp.yaml:1: name: unknown key", id="a long value is not repeated"
        ),
    ],
)
def test_a_mistake_is_told_with_file_line_key_and_remedy(text, message):
    with pytest.raises(ConfigError) as caught:
        read(text, Outer)
    assert str(caught.value).startswith(message)
    assert len(str(caught.value)) < 300


def test_a_missing_key_is_named():
    class Needs(Settings):
        inner: int

    with pytest.raises(ConfigError, match=r"exp.yaml:1: inner: is missing; add it"):
        read("{}", Needs)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", ": the file is empty; `stabexp schema` shows", id="empty"),
        pytest.param("# nothing\n", ": the file is empty", id="only a comment"),
        pytest.param(
            "- a\n- b", ":1: expected keys and values, found a list", id="list at the top"
        ),
        pytest.param(
            "hello", ":1: expected keys and values, found the single value 'hello'", id="text"
        ),
        pytest.param("a: 1\nb: [1, 2", ":2: not valid YAML: ", id="open bracket"),
        pytest.param("a: 1\n\tb: 2", ":2: not valid YAML: ", id="tab"),
        pytest.param("a: b: c", ":1: not valid YAML: ", id="two colons"),
        pytest.param("a: \x00", ": not valid YAML: unacceptable character", id="binary"),
        pytest.param("a: 1\nb: 2\na: 3", ":3: a: given twice (first on line 1)", id="duplicate"),
        pytest.param(
            "a:\n  b: 1\n  b: 2", ":3: b: given twice (first on line 2)", id="deep duplicate"
        ),
        pytest.param("? [a]\n: 1", ":1: a key must be plain text", id="list as a key"),
        pytest.param("a: 1\n---\nb: 2", ":2: not valid YAML: ", id="two documents"),
        pytest.param("a: &x [*x]", ": nested without end", id="an alias in its own anchor"),
        pytest.param("a: *nope", ":1: not valid YAML: found undefined alias", id="unknown alias"),
    ],
)
def test_what_is_not_keys_and_values_is_refused_with_its_line(tmp_path, text, message):
    path = tmp_path / "exp.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_document(path)
    assert str(caught.value).startswith(f"{path}{message}")


def test_a_file_that_cannot_be_read_is_told_with_a_near_name(tmp_path):
    (tmp_path / "spike.yaml").write_text("a: 1")
    (tmp_path / "bytes.yaml").write_bytes(b"a: \xff")
    for name, message in {
        "spkie.yaml": r"no such file; did you mean '.*spike\.yaml'\?",
        "quite_different.yml": r"quite_different.yml: no such file$",
        "gone/exp.yaml": r"no such file$",
        "": r"is a directory; name a YAML file in it",
        "bytes.yaml": r"not UTF-8 text \(byte 3\); is it YAML\?",
    }.items():
        with pytest.raises(ConfigError, match=message):
            read_document(tmp_path / name)


def test_an_alias_repeats_a_value_and_an_anchor_keeps_its_lines():
    document = parse_document("a: &x {rate: 1}\nb: *x")
    assert document.values == {"a": {"rate": "1"}, "b": {"rate": "1"}}


DOCUMENT = parse_document("needed: 1\ninner:\n  rate: 1\n  kind: b\n", name="exp.yaml")


@pytest.mark.parametrize(
    ("assignments", "expected"),
    [
        (["needed=5"], {"needed": 5}),
        (["inner.rate=3e-4"], {"inner": Inner(rate=3e-4, kind="b")}),
        (["inner={rate: 2}"], {"inner": Inner(rate=2)}),
        (["inner.pair=[1, 2]"], {"inner": Inner(rate=1, kind="b", pair=(1, 2))}),
        (["inner.limit=3", "inner.limit=null"], {"inner": Inner(rate=1, kind="b")}),
        (["inner.limit="], {"inner": Inner(rate=1, kind="b", limit=None)}),
        (["inner.name=a=b"], {"inner": Inner(rate=1, kind="b", name="a=b")}),
        (["either=auto"], {"either": "auto"}),
    ],
)
def test_overrides_apply_in_order_and_leave_the_document_alone(assignments, expected):
    found = validate(Outer, override(DOCUMENT, assignments))
    assert {key: getattr(found, key) for key in expected} == expected
    assert DOCUMENT.values["needed"] == "1"
    assert DOCUMENT.values["inner"] == {"rate": "1", "kind": "b"}


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("inner.rat=1", "-o inner.rat=1: inner.rat: unknown key; did you mean 'rate'?"),
        ("inner.rate=x", "-o inner.rate=x: inner.rate: expected a valid number, found 'x'"),
        ("inner={kind: c}", "-o inner={kind: c}: inner.kind: expected 'a' or 'b', found 'c'"),
        ("needed", "-o needed: expected key=value, for example"),
        ("=3", "-o =3: expected key=value"),
        ("inner..rate=3", "-o inner..rate=3: expected key=value"),
        ("needed=[1", "-o needed=[1: the value is not valid YAML: expected ',' or ']'"),
        ("needed={a: 1, a: 2}", "-o needed={a: 1, a: 2}:1: a: given twice"),
    ],
)
def test_a_wrong_override_is_told_as_it_was_typed(assignment, message):
    with pytest.raises(ConfigError) as caught:
        validate(Outer, override(DOCUMENT, [assignment]))
    assert str(caught.value).startswith(message)


def test_an_element_of_a_list_cannot_be_overridden():
    document = parse_document("inner: {pair: [1, 2]}")
    with pytest.raises(ConfigError, match=r"-o inner.pair.0=3: 'pair' is a list; set the whole"):
        override(document, ["inner.pair.0=3"])


def test_a_patch_sets_plain_values_and_is_named_in_messages():
    assert validate(Outer, patched(DOCUMENT, {"inner.rate": 0.5, "needed": 2})) == Outer(
        needed=2, inner=Inner(rate=0.5, kind="b")
    )
    with pytest.raises(ConfigError, match=r"^patch: inner.count: expected greater than or equal"):
        validate(Outer, patched(DOCUMENT, {"inner.count": 0}))


@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(1, 10**9),
    st.booleans(),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="ascii", exclude_categories=("Cc",)), max_size=10),
)
def test_what_was_validated_round_trips_through_yaml(rate, count, on, limit, name):
    original = Inner(rate=rate, count=count, on=on, limit=limit, name=name)
    text = yaml.safe_dump(original.model_dump(mode="json"))
    assert read(text) == original


class Spike(Component):
    """Found."""

    window: int = Field(50, ge=2)


def test_a_component_is_built_from_its_arguments_and_refused_with_their_line():
    table = {"spike": Spike}
    assert component(table, "detectors", "spike", None) == Spike()
    assert component(table, "detectors", "spike", {"window": "7"}) == Spike(window=7)
    document = parse_document("detectors:\n  spike:\n    window: 1\n  spkie:\n", name="exp.yaml")
    for name, message in {
        "spike": "exp.yaml:3: detectors.spike.window: expected greater than or equal to 2, "
        "found '1'",
        "spkie": "exp.yaml:4: detectors.spkie: unknown detector; did you mean 'spike'?",
    }.items():
        args = document.values["detectors"][name]
        with pytest.raises(ConfigError) as caught:
            component(table, "detectors", name, args, document=document)
        assert str(caught.value) == message


def test_suggestions():
    assert suggest("windw", ["window", "patience"]) == "did you mean 'window'?"
    assert suggest("x", ["window", "patience"]) == "allowed: patience, window"
    assert suggest("x", []) == "nothing is allowed here"


def test_a_place_is_the_deepest_one_known():
    document = Document("exp.yaml", {}, {(): 1, ("a",): 3}, {("b",): "-o b=1"})
    assert document.place(("a", "b", "c")) == "exp.yaml:3: a.b.c"
    assert document.place(("b", "c")) == "-o b=1: b.c"
    assert document.place(("z",)) == "exp.yaml:1: z"
    assert document.place(()) == "exp.yaml:1"
    assert Document("", {}).place(("a",)) == "a"
    assert Document("exp.yaml", {}).place(("a",)) == "exp.yaml: a"
