"""The verdict page in a real Chromium: nothing fetched, nothing cut off, the buttons work."""

from __future__ import annotations

import re
import runpy
import shutil
from pathlib import Path

import pytest

from stabexp.reporting import verdict_page

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = shutil.which("chromium")
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
EXAMPLE = Path(__file__).parents[1] / "reporting" / "bisect_example.py"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the PATH"),
]


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    example = runpy.run_path(str(EXAMPLE))
    bisect = example["bisect"]()
    html = verdict_page(
        bisect.report(
            experiment=example["EXPERIMENT"],
            links={record.spec.key: "http://localhost:9/run" for record in bisect.trials},
            fingerprint={"torch": "2.9", "device": "cpu"},
        )
    )
    path = tmp_path_factory.mktemp("page") / "verdict.html"
    path.write_text(html, encoding="utf-8")
    return path


@pytest.fixture
def opened(browser, file):
    """Open the page, or a page that frames it; at the end, complaints and requests must be none."""
    contexts, complaints, requests = [], [], []

    def open_page(*, width=1000, scheme="light", framed=False):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        address = file
        if framed:
            # As MLflow shows an HTML artifact: a blob: address in a frame of unknown origin.
            address = file.with_name("frame.html")
            content = file.read_text(encoding="utf-8").replace("</", "<\\/")
            address.write_text(
                '<!doctype html><link rel="icon" href="data:,"><iframe sandbox="allow-scripts" '
                'style="width:100%;height:800px;border:0"></iframe><script id="s" type="text">'
                f"{content}</script><script>"
                "const text = document.getElementById('s').textContent.replaceAll('<\\\\/', '</');"
                "document.querySelector('iframe').src ="
                "URL.createObjectURL(new Blob([text], {type: 'text/html;charset=utf-8'}));"
                "</script>",
                encoding="utf-8",
            )
        page.goto(address.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in requests if not re.match("file:|data:,|blob:", url)] == []


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
    assert len(sizes) == 2
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


def test_a_name_in_the_legend_picks_out_its_curve(opened):
    page = opened()
    button = page.get_by_role("button", name="03 learning_rate ×0.25, cured")
    button.click()
    page.mouse.move(0, 0)
    button.evaluate("button => button.blur()")
    assert button.get_attribute("aria-pressed") == "true"
    bright = (
        "[...document.querySelectorAll('.wide g.curve:not(.dim) title')].map(t => t.textContent)"
    )
    assert [title[:22] for title in page.evaluate(bright)] == ["03 learning_rate ×0.25"] * 2
    button.click()
    button.evaluate("button => button.blur()")
    page.mouse.move(0, 0)
    assert len(page.evaluate(bright)) > 20


def test_the_keyboard_reaches_everything_that_scrolls_or_acts(opened):
    page = opened(width=400)
    seen = set()
    for _ in range(120):
        page.keyboard.press("Tab")
        seen.add(
            page.evaluate(
                "(e => e.className || e.dataset.copy || e.dataset.curve || e.tagName)"
                "(document.activeElement)"
            )
        )
    assert {"skip", "copy", "run", "strip", "scroll", "trial", "SUMMARY"} <= seen


def test_a_screen_reader_finds_landmarks_and_pictures(opened):
    page = opened()
    for role in ("banner", "main", "contentinfo"):
        assert page.get_by_role(role).count() == 1
    assert page.get_by_role("heading", level=1).count() == 1
    assert page.get_by_role("img", name="Loss of the run and its trials").count() == 1
    assert page.get_by_role("table", name=re.compile("16 trials in the order")).count() == 1


def test_the_page_prints(opened):
    page = opened()
    page.emulate_media(media="print")
    assert not page.get_by_role("button", name="Copy the fix").is_visible()
    assert page.pdf().startswith(b"%PDF")
