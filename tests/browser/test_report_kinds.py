"""Every kind of report, checked by axe in a real Chromium, and printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_pages import CASES, Reports, chromium, needs_chromium

axe = pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")

pytestmark = needs_chromium
AXE = (Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
EVERYWHERE = [(width, scheme) for width in (400, 1000, 1600) for scheme in ("light", "dark")]
OTHERS = [kind for kind in CASES if kind != "setting"]


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    with chromium() as browser:
        yield Reports(browser, tmp_path_factory.mktemp("pages"))


@pytest.fixture
def opened(reports):
    """Open a report; at the end, complaints and requests must be none."""
    yield reports.open
    reports.close()


PLACES = [
    *(("setting", *place) for place in EVERYWHERE),
    *((kind, *EVERYWHERE[at % 6]) for at, kind in enumerate(OTHERS, 1)),
]


@pytest.mark.parametrize(("kind", "width", "scheme"), PLACES)
def test_axe_finds_nothing(opened, kind, width, scheme):
    page = opened(kind, width=width, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate(AXE)
    # Contrast takes a minute on 200 rows; the other kinds have every colour of theirs.
    rules = {"color-contrast": {"enabled": kind != "large"}}
    found = page.evaluate("rules => axe.run(document, {resultTypes: ['violations'], rules})", rules)
    told = [(item["id"], item["impact"], item["nodes"][0]["html"]) for item in found["violations"]]
    assert told == []
    assert len(found["passes"]) > 20


def test_small_pictures_are_enlarged_pixel_by_pixel(opened):
    page = opened("data")
    pictures = page.evaluate(
        "[...document.images].map(i => [i.naturalWidth, i.width, getComputedStyle(i)"
        ".imageRendering, i.alt])"
    )
    assert len(pictures) == 5
    assert pictures[0] == [8, 160, "pixelated", "image of sample 40, 8 × 8, float32"]


def test_texts_run_in_the_direction_of_their_script(opened):
    page = opened("texts")
    directions = page.evaluate(
        "[...document.querySelectorAll('.quoted')].map(e => getComputedStyle(e).direction)"
    )
    assert directions == ["ltr", "rtl", "rtl", "ltr", "ltr", "ltr", "ltr"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_paper_is_white_and_everything_on_it_is_unfolded(opened, scheme):
    page = opened(scheme=scheme)
    page.emulate_media(media="print", color_scheme=scheme)
    assert not page.get_by_role("button", name="Copy the fix").is_visible()
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(255, 255, 255)"
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.querySelectorAll('details:not([open])').length") == 0
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.querySelectorAll('details[open]').length") == 0


def test_nothing_is_wider_than_the_paper(opened):
    page = opened(width=696)  # A4 less its margins, in px
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    wide = page.evaluate(
        "[...document.querySelectorAll('body *')].filter(e => e.checkVisibility() &&"
        " e.getBoundingClientRect().right > 697 && !e.closest('.unseen'))"
        ".map(e => e.outerHTML.slice(0, 90))"
    )
    assert wide == []
    assert page.pdf(format="A4").startswith(b"%PDF")
