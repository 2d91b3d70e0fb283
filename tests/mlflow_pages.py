"""What browser tests of MLflow's pages share: commands, a server, one page, kept screenshots."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import stabexp

CHROMIUM = shutil.which("chromium")
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
PATIENCE = 120_000
"""Milliseconds: MLflow's first page loads megabytes of scripts, on a busy machine."""

_HOME = Path(stabexp.__file__).parent.parent
_KEPT = {
    key: value
    for key, value in os.environ.items()
    if key not in {"MLFLOW_TRACKING_URI", "STABEXP_ROOT", "BROWSER"}
}
ENVIRONMENT = _KEPT | {"PYTHONPATH": str(_HOME), "PYTHONUNBUFFERED": "1"}
SCREENSHOTS = Path(
    os.environ.get("STABEXP_SCREENSHOTS") or Path(tempfile.gettempdir(), "stabexp-screenshots")
)
"""Where screenshots are kept; CI names the folder and keeps it."""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "stabexp.cli", *arguments]


def shell(script: str, *, cwd: Path) -> None:
    """Run a shell script in which `stabexp` and `python` are those that run the tests."""
    tools = cwd / "tools"
    tools.mkdir()
    for name, module in (("stabexp", "-m stabexp.cli "), ("python", "")):
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module}"$@"\n')
        (tools / name).chmod(0o755)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["/bin/sh", "-eu", "-c", script], cwd=cwd, env=ENVIRONMENT | {"PATH": path}, check=True
    )


@contextmanager
def serving(*arguments: str, cwd: Path) -> Iterator[dict[str, Any]]:
    """Run `stabexp ui --json` and yield what it told; end it with Ctrl-C."""
    with subprocess.Popen(
        command("ui", *arguments, "--port", "0", "--json"),
        cwd=cwd,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        told = ""
        for line in server.stdout:
            told += line
            if line == "}\n":
                break
        try:
            yield json.loads(told)
        finally:
            server.send_signal(signal.SIGINT)
            assert server.wait(60) == 0


@contextmanager
def browser_page(address: str, width: int = 1600, height: int = 1000) -> Iterator[Any]:
    """Yield a page in a browser on which MLflow's assistant, which opens by itself, is shut."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": width, "height": height})
        page.set_default_timeout(PATIENCE)
        page.add_init_script(
            "for (const key of ['panelOpen', 'fab.autoOpenedOnFirstLoad'])"
            " localStorage.setItem(`mlflow.assistant.${key}_v1`, String(key !== 'panelOpen'))"
        )
        page.goto(address)
        yield page
        browser.close()


def show(page: Any, address: str) -> None:
    page.goto("about:blank")
    page.goto(address)


def keep(page: Any, name: str) -> None:
    """Keep what the page shows as a picture, for people to look at."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.wait_for_timeout(500)
    page.screenshot(path=SCREENSHOTS / f"{re.sub(r'[^a-z0-9_]+', '-', name.lower())}.png")
