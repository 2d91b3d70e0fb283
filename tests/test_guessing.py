"""What text in a file means where no type is declared: YAML 1.2, and back."""

from __future__ import annotations

import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from stabexp.config import guess, parse_document


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 3e-4),
        ("1e5", 1e5),
        ("-1.5E+3", -1500.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("+7", 7),
        ("010", 10),
        ("1_000", 1000),
        ("true", True),
        ("False", False),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("on", "on"),
        ("no", "no"),
        ("12:30", "12:30"),
        ("e5", "e5"),
        ("E1", "E1"),
        (".e5", ".e5"),
        (".", "."),
        ("+", "+"),
        ("1__0", "1__0"),
        ("1_", "1_"),
        ("_1", "_1"),
        ("1e", "1e"),
        ("0x1F", "0x1F"),
        ("infinity", "infinity"),
        ("nan", "nan"),
        ("٣", "٣"),
        ('"1"', "1"),
        ("'true'", "true"),
        ("null", None),
        ("'null'", "null"),
        ("[1, [a, '2']]", [1, ["a", "2"]]),
        ("{a: 1, b: {c: no}}", {"a": 1, "b": {"c": "no"}}),
    ],
)
def test_guessed_types_are_those_of_yaml_1_2(text, value):
    found = guess(parse_document(f"x: {text}").values["x"])
    assert found == value
    assert type(found) is type(value)


def test_a_block_of_text_stays_text():
    assert guess(parse_document("x: |\n  12\n").values) == {"x": "12\n"}


plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    # PyYAML writes the text 1e5 without quotes, because YAML 1.1 reads it as text: no round trip.
    | st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=8).filter(
        lambda text: guess(text) == text
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abcxyz", min_size=1, max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), plain_values, max_size=4))
def test_what_yaml_writes_is_guessed_back(values):
    text = yaml.safe_dump(values, allow_unicode=True, sort_keys=False)
    found = guess(parse_document(text if values else "{}").values)
    assert repr(found) == repr({key: values[key] for key in found})
    assert found.keys() == values.keys()


@given(st.text(max_size=12))
def test_guessing_any_text_gives_it_back_or_a_number_it_spells(text):
    found = guess(text)
    if isinstance(found, bool):
        assert str(found).lower() == text.lower()
    elif isinstance(found, (int, float)):
        assert found == float(text.replace(".inf", "inf").replace(".nan", "nan")) or math.isnan(
            found
        )
    else:
        assert found == text
