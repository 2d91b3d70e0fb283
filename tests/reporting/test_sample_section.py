from __future__ import annotations

import base64
import math
from dataclasses import replace

import pytest

from stabexp.records import SamplePart, SampleView
from stabexp.reporting import verdict_page
from stabexp.reporting.sample_section import (
    BLAMED,
    MOST_IMAGE,
    MOST_TEXT,
    direction_of,
    sample_section,
    script_of,
)


def sample(number, *parts, blamed=True, **more):
    return SampleView(sample=number, blamed=blamed, parts=parts, **more)


def text(words, **more):
    return SamplePart(name="t", kind="text", text=words, **more)


@pytest.mark.parametrize(
    ("written", "script", "direction"),
    [
        ("plain words", "Latin", "ltr"),
        ("学习率", "Chinese characters", "ltr"),
        ("ひらがな カタカナ", "Japanese", "ltr"),
        ("한국어", "Korean", "ltr"),
        ("خسارة 42", "Arabic, right to left", "rtl"),
        ("12 שלום", "Hebrew, right to left", "rtl"),
        ("loss 损失 loss", "Latin, Chinese characters", "ltr"),
        ("123 !?", "no letters", "auto"),
        ("🔥", "symbols", "auto"),
        ("", "no letters", "auto"),
    ],
)
def test_a_text_is_told_by_its_script_and_direction(written, script, direction):
    assert script_of(written) == script
    assert direction_of(written) == direction


def test_samples_at_fault_come_first_and_ordinary_ones_last():
    section = sample_section(
        [
            sample(1, blamed=False),
            sample(2, blamed=False, stood_out=True),
            sample(3),
        ]
    )
    assert [(s.sample, s.standing) for s in section.samples] == [
        (3, "at fault"),
        (2, "stands out"),
        (1, "ordinary"),
    ]


def test_of_very_many_samples_a_dozen_is_shown_and_the_rest_counted():
    section = sample_section([sample(at) for at in range(40)])
    assert len(section.samples) == BLAMED
    assert section.left_out == 28


def test_a_small_picture_is_enlarged_by_a_whole_factor(cases):
    part = sample_section(cases["data"]().samples).samples[0].parts[0]
    assert (part.kind, part.width, part.height, part.small) == ("image", 160, 160, True)


@pytest.mark.parametrize(
    "image",
    [
        "",
        "not base64!",
        base64.b64encode(b"GIF89a" + b"\0" * 10 + b"\0\0\0\x08" * 4).decode(),
        base64.b64encode(b"\x89PNG\r\n\x1a\n").decode(),
        '" onerror="alert(1)',
    ],
)
def test_what_is_no_png_is_not_put_into_the_page(image):
    part = sample_section([sample(1, SamplePart(name="x", kind="image", image=image))])
    shown = part.samples[0].parts[0]
    assert (shown.kind, shown.source) == ("unknown", "")
    assert shown.text == "not a picture that can be shown"


def test_pictures_are_bounded_one_by_one_and_together(cases):
    good = cases["data"]().samples[0].parts[0]
    raw = base64.b64decode(good.image) + b"\0" * (MOST_IMAGE // 2)
    padded = base64.b64encode(raw[: len(raw) // 3 * 3]).decode()
    large = replace(good, image=padded + "AAAA" * MOST_IMAGE)
    assert sample_section([sample(1, large)]).samples[0].parts[0].text == "too large to be shown"
    many = sample_section([sample(at, replace(good, image=padded)) for at in range(8)])
    sources = [part.source for shown in many.samples for part in shown.parts]
    assert 0 < sum(map(len, sources)) <= 3 * MOST_IMAGE
    assert sources[-1] == ""


def test_a_long_text_is_cut_and_what_is_left_out_is_counted():
    part = sample_section([sample(1, text("x" * 5000))]).samples[0].parts[0]
    assert len(part.text) == MOST_TEXT
    assert part.left_out == 5000 - MOST_TEXT


def numbers(*values):
    return SamplePart(name="n", kind="numbers", values=values, shape=(len(values),))


def test_numbers_are_drawn_on_one_scale_so_that_a_giant_shows():
    section = sample_section([sample(1, numbers(1.0, 4e9)), sample(2, numbers(1.0, 2.0))])
    tall = [part.strip.count('height="0.6"') for s in section.samples for part in s.parts]
    assert tall == [1, 2]  # beside the giant all others are hairlines


@pytest.mark.parametrize(
    "values",
    [(math.nan, math.inf, -math.inf), (0.0, 0.0), (1.7e308, -1.7e308), (5e-324, 0.0)],
)
def test_any_numbers_can_be_drawn(values):
    strip = sample_section([sample(1, numbers(*values))]).samples[0].parts[0].strip
    assert 'y="nan"' not in strip
    assert strip.count('class="lost"') == sum(not math.isfinite(value) for value in values)


def test_a_sample_that_cannot_be_shown_says_why(cases):
    why = SamplePart(name="x", kind="unknown", text="reading it raised KeyError: 'x'")
    report = replace(cases["data"](), samples=[sample(1, why)])
    assert "Not shown: reading it raised KeyError" in verdict_page(report)


def test_what_samples_hold_stays_text(cases):
    hostile = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\x00\u202e"
    parts = [
        SamplePart(name=hostile, kind=kind, text=hostile, unusual=hostile, dtype=hostile)
        for kind in ("text", "numbers", "unknown", "image")
    ]
    page = verdict_page(replace(cases["data"](), samples=[sample(1, *parts)]))
    assert page.count("<script") == 1
    assert "<img" not in page
    assert not {"\x00", "\u202e"} & set(page)
