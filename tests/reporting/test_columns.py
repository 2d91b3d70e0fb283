from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stabexp.reporting.columns import columns, cut, fit, pad, wrap

WORDS = st.lists(
    st.sampled_from(["loss", "2.191", "学习率过高", "→", "naïve", "a" * 30, "e\u0301", "🎲"])
    | st.text("abc学→ ", min_size=1, max_size=12),
    max_size=40,
)


@pytest.mark.parametrize(
    ("text", "takes"),
    [("loss", 4), ("学习率", 6), ("e\u0301", 1), ("→", 1), ("ｗide", 5), ("", 0), ("a\u200bb", 2)],
)
def test_a_text_takes_as_many_columns_as_a_terminal_gives_it(text, takes):
    assert columns(text) == takes


def test_a_padded_text_is_as_wide_as_asked_and_a_cut_one_not_wider():
    assert columns(pad("学习", 7)) == 7
    assert cut("学习率过高", 7) == "学习率…"
    assert cut("short", 5) == "short"


@given(WORDS, st.integers(20, 60))
def test_a_wrapped_text_keeps_every_word_and_fits(words, width):
    text = " ".join(words)
    lines = wrap(text, width, first="  - ", then="    ")
    assert "".join("".join(lines).split()).removeprefix("-") == "".join(text.split())
    unbreakable = max((columns(w) for w in text.split() if columns(w) == len(w)), default=0)
    assert max(map(columns, lines)) <= max(width, 4 + unbreakable)


FITTED = [
    pytest.param("short enough", "short enough", id="fits"),
    pytest.param(
        "  - seed: this is one sentence that is longer than forty columns",
        "  - seed: this is one sentence that is\n    longer than forty columns",
        id="a bullet hangs",
    ),
    pytest.param(
        "find out why: stabexp bisect --root a/long/root/of/runs late-1234",
        "find out why:\n  stabexp bisect --root a/long/root/of/runs late-1234",
        id="a command has a line of its own",
    ),
    pytest.param(
        "    stabexp run exp.yaml -o optimizer.lr=0.0075 -o clip=1",
        "    stabexp run exp.yaml -o optimizer.lr=0.0075 -o clip=1",
        id="a command stays whole",
    ),
    pytest.param(
        "the report: " + "/".join(["folder"] * 9),
        "the report:\n  " + "/".join(["folder"] * 9),
        id="a path stays whole",
    ),
    pytest.param(
        "   where     layer 3, step 8, samples 1, 2, 3, 4, 5, 6",
        "   where     layer 3, step 8, samples 1,\n             2, 3, 4, 5, 6",
        id="a label hangs",
    ),
]


@pytest.mark.parametrize(("text", "fitted"), FITTED)
def test_a_line_that_is_too_long_is_wrapped_behind_its_own_front(text, fitted):
    assert fit(text, 40, written_for=40) == fitted


def test_for_a_narrow_terminal_paragraphs_are_wrapped_anew_and_tables_are_not_joined():
    text = "one two three four five six\nseven eight nine\n\n  1  a row\n  2  another"
    assert fit(text, 14, written_for=30) == (
        "one two three\n  four five\n  six seven\n  eight nine\n\n  1  a row\n  2  another"
    )
