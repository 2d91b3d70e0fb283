"""The report's page in a real Chromium: nothing fetched, nothing cut off, the buttons work."""

from __future__ import annotations

import itertools
import re

import pytest
from report_pages import Reports, chromium, needs_chromium

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    with chromium() as browser:
        yield Reports(browser, tmp_path_factory.mktemp("pages"))


@pytest.fixture
def opened(reports):
    """Open a report; at the end, complaints and requests must be none."""
    yield reports.open
    reports.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1000, 1600])
def test_nothing_makes_the_page_scroll_sideways(opened, width, scheme):
    page = opened(width=width, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 27)")


@pytest.mark.parametrize("width", [400, 1000])
def test_chart_text_is_readable_at_its_real_size(opened, width):
    page = opened(width=width)
    heights = page.evaluate(
        "[...document.querySelectorAll('svg.chart text')].filter(t => t.checkVisibility())"
        ".map(t => { const box = t.getBoundingClientRect();"
        " return Math.min(box.width, box.height); })"
    )
    assert len(heights) > 20
    assert min(heights) > 4  # the narrow side of a single digit
    sizes = page.evaluate(
        "[...document.querySelectorAll('svg.chart')].filter(t => t.checkVisibility())"
        ".map(s => 12 * s.getBoundingClientRect().width / s.viewBox.baseVal.width)"
    )
    # Two of the curves, two of the layers, four checks, five variables.
    assert len(sizes) == 13
    assert min(sizes) > 10.5


@pytest.mark.parametrize("framed", [False, True], ids=["from disk", "in a sandboxed frame"])
def test_the_copy_button_copies_or_selects_the_fix(opened, framed):
    page = opened(framed=framed)
    place = page.frame_locator("iframe") if framed else page
    place.get_by_role("button", name="Copy the fix").click()
    said = place.locator(".fix .said").first
    said.get_by_text(re.compile("Copied|Selected")).wait_for()
    frame = page.frames[-1]
    assert frame.evaluate("String(getSelection())").strip() == (
        "optimizer:\n  lr: 0.0075  # was 3e-2"
    )


def test_a_sandboxed_frame_says_where_a_link_leads(opened):
    place = opened(framed=True).frame_locator("iframe")
    place.get_by_role("link", name="trial 03 in the tracking server").click()
    place.get_by_text("The address is http://localhost:9/run").wait_for()


BRIGHT = (
    "[...document.querySelectorAll('figure .wide g.curve:not(.dim) title')].map(t => t.textContent)"
)


def test_a_name_in_the_legend_picks_out_its_curve(opened):
    page = opened()
    button = page.get_by_role("button", name="03 learning_rate ×0.25, cured")
    button.click()
    page.mouse.move(0, 0)
    button.evaluate("button => button.blur()")
    assert button.get_attribute("aria-pressed") == "true"
    assert [title[:22] for title in page.evaluate(BRIGHT)] == ["03 learning_rate ×0.25"] * 2
    button.click()
    button.evaluate("button => button.blur()")
    page.mouse.move(0, 0)
    assert len(page.evaluate(BRIGHT)) > 20


def test_curves_are_picked_and_let_go_by_keyboard_alone(opened):
    page = opened()
    button = page.get_by_role("button", name="03 learning_rate ×0.25, cured")
    button.focus()
    assert len(page.evaluate(BRIGHT)) == 2
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert len(page.evaluate(BRIGHT)) == 4  # the one that is kept, and the one in focus
    page.keyboard.press("Escape")
    assert button.get_attribute("aria-pressed") == "false"
    assert len(page.evaluate(BRIGHT)) > 20


def test_the_keyboard_reaches_everything_that_scrolls_or_acts(opened):
    page = opened(width=400)
    seen = set()
    for _ in range(150):
        page.keyboard.press("Tab")
        seen.add(
            page.evaluate(
                "(e => e.className || e.dataset.copy || e.dataset.curve || e.tagName)"
                "(document.activeElement)"
            )
        )
    assert {"skip", "copy", "ask", "run", "strip", "scroll", "trial", "SUMMARY"} <= seen


def test_what_has_the_focus_is_outlined(opened):
    page = opened()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    width = page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
    assert width == "3px"


def test_a_screen_reader_finds_landmarks_and_pictures(opened):
    page = opened()
    for role in ("banner", "main", "contentinfo"):
        assert page.get_by_role(role).count() == 1
    assert page.get_by_role("heading", level=1).count() == 1
    assert page.get_by_role("img", name="Loss of the run and its trials").count() == 1
    assert page.get_by_role("img", name="Dose and response of clip_norm").count() == 1
    assert page.get_by_role("img", name="Gradient flow over depth").count() == 1
    assert page.get_by_role("table", name=re.compile("16 trials in the order")).count() == 1


def test_a_question_of_the_tree_leads_to_its_evidence_and_that_to_its_trials(opened):
    page = opened()
    tree = page.get_by_role("group", name="The decision tree")
    tree.get_by_role("link", name=re.compile("Is the steady rate too high")).click()
    evidence = page.locator("li:target")
    assert "Is the steady rate itself too high?" in evidence.inner_text()
    evidence.get_by_role("link", name="trial 03").click()
    assert "×0.25" in page.locator("tr:target").inner_text()


@pytest.mark.parametrize("width", [400, 1000])
def test_the_drawn_tree_holds_all_questions_and_none_covers_another(opened, width):
    page = opened(width=width)
    boxes = page.evaluate(
        "[...document.querySelectorAll('.tree > li')].map(e => {"
        " const b = e.getBoundingClientRect(); return [b.top, b.bottom, b.right]; })"
    )
    assert len(boxes) == 18
    assert all(before[1] <= after[0] + 1 for before, after in itertools.pairwise(boxes))
    assert max(box[2] for box in boxes) <= width


def test_who_wants_no_motion_sees_none(opened):
    page = opened(reduced_motion="reduce")
    moving = page.evaluate(
        "[...document.querySelectorAll('*')].filter("
        "e => getComputedStyle(e).transitionDuration !== '0s').length"
    )
    assert moving == 0


def test_forced_colours_keep_the_drawings_in_the_colours_that_were_forced(opened):
    page = opened(forced_colors="active")
    ink = page.evaluate("getComputedStyle(document.querySelector('.marker text')).fill")
    forced = page.evaluate("getComputedStyle(document.querySelector('h1')).color")
    assert ink == forced
