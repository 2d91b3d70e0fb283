"""Reports in a real Chromium, and what they complain about and ask the network for."""

from __future__ import annotations

import re
import runpy
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stabexp.reporting import verdict_page

CHROMIUM = shutil.which("chromium")
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
# Loaded by path: tests are not a package.
CASES: dict[str, Callable[[], Any]] = runpy.run_path(
    str(Path(__file__).parent / "reporting" / "report_cases.py")
)["CASES"]

needs_chromium = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the PATH"),
]


@contextmanager
def chromium() -> Iterator[Any]:
    """Yield a browser."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


class Reports:
    """Opens reports from disk, each written once."""

    def __init__(self, browser: Any, folder: Path) -> None:
        self.browser = browser
        self.folder = folder
        self.complaints: list[str] = []
        self.requests: list[str] = []

    def file(self, kind: str) -> Path:
        """Return the page of one of the cases."""
        path = self.folder / f"{kind}.html"
        if not path.exists():
            path.write_text(verdict_page(CASES[kind]()), encoding="utf-8")
        return path

    def open(
        self,
        kind: str = "setting",
        *,
        width: int = 1000,
        scheme: str = "light",
        framed: bool = False,
        **options: Any,
    ) -> Any:
        """Return the page, opened from disk, or in a frame as MLflow shows it."""
        context = self.browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, **options
        )
        page = context.new_page()
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        file = self.file(kind)
        page.goto((_framed(file) if framed else file).as_uri())
        return page

    def close(self) -> None:
        """Close all pages; none may have complained, or asked the network for anything."""
        for context in self.browser.contexts:
            context.close()
        complaints, requests = self.complaints, self.requests
        self.complaints, self.requests = [], []
        assert complaints == []
        assert [url for url in requests if not re.match("file:|data:|blob:", url)] == []


def _framed(file: Path) -> Path:
    """Return a page with a report in it: a blob: address in a frame of unknown origin."""
    frame = file.with_suffix(".frame.html")
    content = file.read_text(encoding="utf-8").replace("</", "<\\/")
    frame.write_text(
        '<!doctype html><link rel="icon" href="data:,"><iframe sandbox="allow-scripts" '
        'style="width:100%;height:800px;border:0"></iframe><script id="s" type="text">'
        f"{content}</script><script>"
        "const text = document.getElementById('s').textContent.replaceAll('<\\\\/', '</');"
        "document.querySelector('iframe').src ="
        "URL.createObjectURL(new Blob([text], {type: 'text/html;charset=utf-8'}));"
        "</script>",
        encoding="utf-8",
    )
    return frame
