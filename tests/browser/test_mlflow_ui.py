"""MLflow's own pages in a real Chromium: a bisect's story can be read in them without set-up."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from mlflow_pages import CHROMIUM, PATIENCE, browser_page, keep, serving, shell, show

import stabexp
from stabexp import api

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
    comment: str
    """What CI posts, as the documentation has it."""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    home = tmp_path_factory.mktemp("site")
    (home / "exp.yaml").write_text(EXPERIMENT)
    page = (Path(stabexp.__file__).parent.parent / "docs/report_formats.md").read_text("utf-8")
    shell(re.findall(r"```sh\n(.*?)```", page, re.DOTALL)[0], cwd=home)
    run_id = json.loads((home / "run.json").read_text("utf-8"))["run_id"]
    with serving(run_id, cwd=home) as told:
        loaded = api.load(run_id, root=home / "stabexp_runs")
        yield Site(loaded, told["links"], (home / "report.md").read_text("utf-8"))


@pytest.fixture(scope="module")
def page(site):
    """One page for all tests, so that MLflow's scripts are loaded once."""
    with browser_page(site.links["all runs"]) as opened:
        yield opened


def test_what_ci_posts_is_the_verdict_on_the_run(site):
    assert site.comment.startswith(f"### Run {site.loaded.run_id} diverged at step ")
    assert site.loaded.verdict.next_command in site.comment


def test_the_run_table_unfolds_from_the_run_to_its_trials(site, page):
    verdict = site.loaded.verdict
    show(page, site.links["all runs"])
    page.get_by_text("stabexp.cause").wait_for()
    family = [
        f"{site.loaded.run_id} DIVERGED@{site.loaded.divergence.detected}: {verdict.cause}",
        f"bisect 1: {verdict.cause} ({site.loaded.run_id})",
        site.loaded.trial_records[0].name,
    ]
    for name in family[:2]:
        cell = page.get_by_role("gridcell").filter(has_text=name)
        cell.get_by_role("button").first.click()
    page.get_by_text(family[2], exact=True).wait_for()
    keep(page, "run_table")


def test_what_all_this_is_stands_above_the_runs(site, page):
    show(page, site.links["all runs"])
    page.get_by_text("Trainings watched by stabexp, and why some of them diverged.").wait_for()


def test_the_saved_view_lists_the_trials_in_order_with_question_and_finding(site, page):
    show(page, site.links["the trials in a table"])
    for trial in site.loaded.trial_records[:10]:
        page.get_by_text(trial.name, exact=True).wait_for()
    text = page.inner_text("body")
    for column in ("stabexp.reason", "stabexp.finding", "outcome", "verdict/steps_survived"):
        assert f"\n{column}\n" in text
    places = [text.index(f"\n{trial.name}\n") for trial in site.loaded.trial_records[:10]]
    assert places == sorted(places)
    for trial in site.loaded.trial_records[:10]:
        assert f"\n{trial.spec.reason}\n" in text
    keep(page, "trials_table")


def test_the_saved_view_draws_bars_coordinates_and_curves(site, page):
    show(page, site.links["the trials in charts"])
    for title in ("verdict/steps_survived", "Parallel Coordinates", "loss_log10"):
        page.get_by_text(title, exact=True).first.wait_for()
    page.locator(".js-plotly-plot .barlayer path").first.wait_for()
    page.locator(".js-plotly-plot .scatterlayer path").first.wait_for()
    keep(page, "trials_charts")


def test_the_compare_page_compares_the_trials_by_what_tells_the_story(site, page):
    compared = [trial for trial in site.loaded.trial_records if trial.spec.role != "scan"][:10]
    assert len(compared) >= 6
    show(page, site.links["the trials compared"])
    page.get_by_text(f"Comparing {len(compared)} Runs from 1 Experiment").wait_for()
    for trial in compared:
        page.get_by_text(trial.name, exact=True).first.wait_for()
    # The parameters and the metric that MLflow picks by itself are the ones that tell the story.
    for name in ("changed", "dose", "outcome", "verdict/steps_survived"):
        page.locator(".js-plotly-plot").get_by_text(name, exact=True).first.wait_for()
    keep(page, "compare")


def test_the_description_of_the_run_is_its_verdict_with_a_picture_and_the_report(site, page):
    show(page, site.links["the run"])
    page.get_by_role("heading", name=site.loaded.verdict.summary).wait_for()
    page.get_by_text("Show more").first.click()
    picture = page.locator("img[src*='loss.svg']")
    picture.scroll_into_view_if_needed()
    page.wait_for_function("image => image.naturalWidth > 500", arg=picture.element_handle())
    keep(page, "run_description")
    with page.expect_popup() as opened:
        page.get_by_role("link", name="The full report").click()
    report = opened.value.frame_locator("iframe")
    report.get_by_role("heading", name=site.loaded.verdict.summary).wait_for(timeout=PATIENCE)
    opened.value.close()


def test_the_description_links_to_the_trials(site, page):
    show(page, site.links["the run"])
    page.get_by_text("Show more").first.click()
    with page.expect_popup() as opened:
        page.get_by_role("link", name="All trials in a table").click()
    name = site.loaded.trial_records[0].name
    opened.value.get_by_text(name, exact=True).wait_for(timeout=PATIENCE)
    opened.value.close()


def test_a_trial_says_what_it_was_for_and_leads_back(site, page):
    show(page, site.links["the trials in a table"])
    trial = site.loaded.trial_records[-1]
    page.get_by_role("link", name=trial.name, exact=True).click()
    page.get_by_role("heading", name=trial.name).last.wait_for()
    text = page.inner_text("body")
    assert trial.spec.reason[1:] in text
    assert "What came of it" in text
    keep(page, "trial")
    with page.expect_popup() as opened:
        page.get_by_role("link", name=site.loaded.run_id, exact=True).click()
    summary = site.loaded.verdict.summary
    opened.value.get_by_role("heading", name=summary).wait_for(timeout=PATIENCE)
    opened.value.close()


def test_the_report_renders_in_the_artifact_viewer(site, page):
    show(page, site.links["the report"])
    report = page.frame_locator("iframe")
    report.get_by_role("heading", name=site.loaded.verdict.summary).wait_for()
    assert report.locator("svg.chart").locator("visible=true").count() >= 2
    keep(page, "report")


@pytest.mark.parametrize(
    ("file", "selector"),
    [
        pytest.param("verdict.md", "h3:has-text('diverged at step')", id="Markdown as text"),
        pytest.param("trials.json", "text=what it showed", id="the trials as a table"),
        pytest.param("loss.svg", "img", id="the picture as one"),
    ],
)
def test_what_lies_beside_the_report_renders_too(site, page, file, selector):
    show(page, re.sub(r"verdict\.html", file, site.links["the report"]))
    page.locator(selector).first.wait_for()
    keep(page, f"artifact_{file.partition('.')[2]}")
