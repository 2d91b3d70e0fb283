"""The example store, opened from a copy of it in another folder as a clone would be."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from mlflow_pages import CHROMIUM, browser_page, keep, serving, show

import stabexp

EXAMPLE = Path(stabexp.__file__).parent.parent / "mlruns_example"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the PATH"),
    pytest.mark.skipif(not EXAMPLE.exists(), reason="there is no example store in this copy"),
]

CAUSES = ("clip_norm", "warmup", "learning_rate", "data", "implementation", "marginal")


@pytest.fixture(scope="module")
def links(tmp_path_factory):
    clone = tmp_path_factory.mktemp("clone") / "elsewhere with spaces"
    shutil.copytree(EXAMPLE, clone)
    with serving("--root", str(clone), cwd=clone) as told:
        assert told["copied"]
        assert told["open"] == told["links"]["all runs"]
        yield told["links"]


@pytest.fixture(scope="module")
def page(links):
    with browser_page(links["all runs"]) as opened:
        yield opened


def test_the_list_of_runs_names_every_cause(links, page):
    show(page, links["all runs"])
    page.get_by_role("link", name=re.compile("healthy-cnn")).wait_for()
    for cause in CAUSES:
        page.get_by_role("link", name=re.compile(rf"DIVERGED@\d+: {cause}")).wait_for()
    keep(page, "example_runs")


def test_the_description_leads_to_every_report_and_to_the_trials(links, page):
    show(page, links["all runs"])
    page.get_by_text("Trainings that diverged, and why.").wait_for()
    assert page.locator("a[href*='report/verdict.html']").count() == len(CAUSES)
    trials = page.locator("a[href*='unclipped-bursts'][href*='-trials']")
    address = trials.first.get_attribute("href")
    show(page, f"{links['all runs'].partition('#')[0]}{address}")
    page.get_by_text("00 unchanged replay: diverged", exact=True).wait_for()
    keep(page, "example_trials")


def test_a_run_shows_its_verdict_its_picture_and_its_report(links, page):
    show(page, links["all runs"])
    page.get_by_role("link", name=re.compile(r"DIVERGED@\d+: data")).click()
    page.get_by_role("heading", name="The data is at fault").wait_for()
    page.get_by_text("Show more").first.click()
    picture = page.locator("img[src*='loss.svg']")
    page.wait_for_function("image => image.naturalWidth > 500", arg=picture.element_handle())
    keep(page, "example_run")
    with page.expect_popup() as opened:
        page.get_by_role("link", name="The full report").click()
    report = opened.value.frame_locator("iframe")
    report.get_by_role("heading", name="The data is at fault").wait_for(timeout=120_000)
    keep(opened.value, "example_report")
    opened.value.close()


def test_the_saved_comparison_can_be_browsed_in_a_table_and_in_charts(links, page):
    view = links["all runs"].replace("stabexpruns", "stabexp-rnn-at-rate")
    show(page, view)
    for rate in ("0.2", "0.4", "0.75", "1.5", "3", "6"):
        page.get_by_role("link", name=re.compile(rf"^rnn-at-rate-{re.escape(rate)}-")).wait_for()
    keep(page, "example_comparison_table")
    show(page, view.replace("&viewState", "&compareRunsMode=CHART&viewState"))
    page.locator(".js-plotly-plot .scatterlayer path").first.wait_for()
    keep(page, "example_comparison_charts")
