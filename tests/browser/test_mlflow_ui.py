"""MLflow's own pages in a real Chromium: a bisect's story can be read in them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.parse
from pathlib import Path
from typing import NamedTuple

import pytest

import stabexp
from stabexp import api
from stabexp.records import TrialRecord
from stabexp.tracking.upload_state import read_uploads

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = shutil.which("chromium")
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
HOME = Path(stabexp.__file__).parent.parent
ENVIRONMENT = os.environ | {"PYTHONPATH": str(HOME), "PYTHONUNBUFFERED": "1"}
PATIENCE = 60_000
"""Milliseconds: MLflow's first page loads megabytes of scripts, on a busy machine."""

EXPERIMENT = (Path(stabexp.__file__).parent / "demo" / "unclipped_bursts.yaml").read_text("utf-8")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the PATH"),
]


class Site(NamedTuple):
    """A bisected run and the pages it is shown on."""

    loaded: api.Loaded
    links: dict[str, str]
    """What `stabexp ui` said, by what it shows."""

    @property
    def address(self) -> str:
        return self.links["all runs"].partition("/#")[0]

    def store_id(self, trial: TrialRecord) -> str:
        """Return the run id that MLflow gave a trial."""
        path = self.loaded.directory / "bisects/bisect-1/trials" / trial.directory
        return next(iter(read_uploads(path).values())).store_id


def stabexp_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "stabexp.cli", *arguments]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    home = tmp_path_factory.mktemp("site")
    (home / "exp.yaml").write_text(EXPERIMENT)
    environment = {key: value for key, value in ENVIRONMENT.items() if key != "MLFLOW_TRACKING_URI"}

    def call(*arguments: str) -> str:
        return subprocess.run(
            stabexp_command(*arguments),
            cwd=home,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        ).stdout

    run_id = json.loads(call("run", "exp.yaml", "-q", "--json"))["run_id"]
    call("bisect", run_id, "-q")
    with subprocess.Popen(
        stabexp_command("ui", run_id, "--port", "0"),
        cwd=home,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        said = ""
        for line in server.stdout:
            said += line
            if "Ctrl-C" in line:
                break
        try:
            links = dict(re.findall(r"^  (\S.*?) +(http\S+)$", said, re.MULTILINE))
            yield Site(api.load(run_id, root=home / "stabexp_runs"), links)
        finally:
            server.send_signal(signal.SIGINT)


@pytest.fixture(scope="module")
def page(site):
    """One page for all tests, so that MLflow's scripts are loaded once."""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        opened = browser.new_page(viewport={"width": 1800, "height": 1200})
        opened.set_default_timeout(PATIENCE)
        yield opened
        browser.close()


def show(page, address: str) -> None:
    page.goto("about:blank")
    page.goto(address)


def test_the_run_table_unfolds_from_the_run_to_its_trials(site, page):
    verdict = site.loaded.verdict
    show(page, site.links["all runs"])
    page.get_by_text("stabexp.cause").wait_for()
    family = [
        f"{site.loaded.run_id} DIVERGED@{site.loaded.divergence.detected}",
        f"bisect: {verdict.cause} ({site.loaded.run_id})",
        site.loaded.trials[0].name,
    ]
    for name in family[:2]:
        cell = page.get_by_role("gridcell").filter(has_text=name)
        cell.get_by_role("button").first.click()
    page.get_by_text(family[2], exact=True).wait_for()


def test_the_saved_view_lists_every_trial_with_what_was_changed_and_what_came_of_it(site, page):
    show(page, site.links["the trials in a table"])
    for trial in site.loaded.trials:
        page.get_by_text(trial.name, exact=True).wait_for()
    text = page.inner_text("body")
    for column in ("variable", "dose", "from_step", "outcome", "verdict/steps_survived"):
        assert f"\n{column}\n" in text
    for outcome in {trial.outcome for trial in site.loaded.trials}:
        assert f"\n{outcome}\n" in text


def test_the_saved_view_draws_bars_coordinates_and_curves(site, page):
    show(page, site.links["the trials in charts"])
    for title in ("verdict/steps_survived", "Parallel Coordinates", "loss_log10"):
        page.get_by_text(title, exact=True).first.wait_for()
    page.locator(".js-plotly-plot .barlayer path").first.wait_for()
    page.locator(".js-plotly-plot .scatterlayer path").first.wait_for()


def test_the_compare_page_compares_eight_trials(site, page):
    chosen = site.loaded.trials[:8]
    assert len(chosen) == 8
    runs = urllib.parse.quote(json.dumps([site.store_id(trial) for trial in chosen]))
    experiments = urllib.parse.quote('["1"]')
    show(page, f"{site.address}/#/compare-runs?runs={runs}&experiments={experiments}")
    page.get_by_text("Comparing 8 Runs from 1 Experiment").wait_for()
    for trial in chosen:
        page.get_by_text(trial.name, exact=True).first.wait_for()
    # The parameters that MLflow picks by itself are the ones that tell the story.
    for name in ("dose", "outcome", "variable"):
        page.locator(".js-plotly-plot").get_by_text(name, exact=True).first.wait_for()


def test_the_description_of_the_run_is_its_verdict_and_links_to_the_report(site, page):
    show(page, site.links["the run"])
    page.get_by_role("heading", name=site.loaded.verdict.summary).wait_for()
    page.get_by_text("Show more").first.click()
    with page.expect_popup() as opened:
        page.get_by_role("link", name="The full report").click()
    report = opened.value.frame_locator("iframe")
    report.get_by_role("heading", name=site.loaded.verdict.summary).wait_for(timeout=PATIENCE)
    opened.value.close()


def test_the_report_renders_in_the_artifact_viewer(site, page):
    show(page, site.links["the report"])
    report = page.frame_locator("iframe")
    report.get_by_role("heading", name=site.loaded.verdict.summary).wait_for()
    # The losses of all trials over each other, and how long each survived.
    assert report.locator("svg.chart").locator("visible=true").count() == 2
