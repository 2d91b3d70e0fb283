"""The site builds without a warning, asks no other host for anything, and works in a browser."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from docs.snippets import ROOT

pytest.importorskip("sphinx", reason="sphinx is not installed")
CHROMIUM = shutil.which("chromium")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
WIDTHS = (400, 1000, 1600)
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"

pytestmark = pytest.mark.slow


def build(docs, site):
    """Build the site as CI does; return the exit code and what was said."""
    options = ["-E", "-W", "--keep-going", "-n", "-q", "-b", "html"]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, "-d", site.with_name("trees"), docs, site],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "html"
    code, said = build(ROOT / "docs", folder)
    assert (code, said) == (0, "")
    return folder


@pytest.fixture(scope="module")
def address(site):
    handler = functools.partial(Quiet, directory=site)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a line for each."""

    def log_message(self, *words):
        pass


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no chromium on the PATH")
    with sync_api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield made
        made.close()


def test_every_page_is_in_the_menu(site):
    menu = (site / "index.html").read_text("utf-8")
    pages = [
        path.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        for path in (ROOT / "docs").rglob("*.md")
    ]
    assert [page for page in pages if page != "index.html" and f'href="{page}"' not in menu] == []


def test_a_dead_link_breaks_the_build(tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    for name in ("conf.py", "navigation.py"):
        shutil.copy(ROOT / "docs" / name, docs)
    shutil.copytree(ROOT / "docs" / "_static", docs / "_static")
    (docs / "index.md").write_text("# Here\n\n[there](there.md) and [below](#below)\n", "utf-8")
    code, said = build(docs, tmp_path / "html")
    assert code != 0
    assert "there.md" in said
    assert "below" in said


def test_no_page_asks_another_host_or_fails_or_is_wider_than_a_phone(site, address, browser):
    page = browser.new_page(viewport={"width": WIDTHS[0], "height": 800})
    asked, problems, wide = set(), [], {}
    page.on("request", lambda request: asked.add(request.url))
    page.on("pageerror", lambda error: problems.append(f"{page.url}: {error}"))
    page.on("response", lambda r: problems.append(r.url) if r.status >= 400 else None)
    for path in sorted(site.rglob("*.html")):
        page.goto(f"{address}/{path.relative_to(site).as_posix()}")
        if (wider := page.evaluate(WIDER)) > 0:
            wide[path.name] = wider
    page.close()
    assert {url for url in asked if not url.startswith((address, "data:"))} == set()
    assert problems == []
    assert wide == {}


def test_the_search_finds_a_detector(address, browser):
    page = browser.new_page()
    page.goto(f"{address}/search.html?q=loss_spike")
    page.wait_for_selector("#search-results li a")
    found = page.locator("#search-results li a").all_inner_texts()
    page.close()
    assert "Detectors" in found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_ground_differ_enough(scheme, address, browser):
    page = browser.new_page(color_scheme=scheme)
    page.goto(f"{address}/reference/detectors.html")
    colours = page.evaluate(
        "[getComputedStyle(document.querySelector('article p')).color,"
        " getComputedStyle(document.body).backgroundColor]"
    )
    page.close()
    text, ground = (_luminance(colour) for colour in colours)
    ratio = (max(text, ground) + 0.05) / (min(text, ground) + 0.05)
    assert ratio >= 7
    assert (ground > text) == (scheme == "light")


def _luminance(colour):
    """Return the relative luminance of "rgb(r, g, b)". Source: WCAG 2.2, relative luminance."""
    parts = [float(part) / 255 for part in colour.partition("(")[2].rstrip(")").split(",")[:3]]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(weight * p for weight, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
