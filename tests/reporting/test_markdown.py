"""The Markdown for issues says what the page says, and does nothing else to who reads it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from stabexp.records import StepRecord
from stabexp.reporting import run_markdown, verdict_markdown
from stabexp.reporting.markdown import MOST_CHARACTERS, as_diff
from stabexp.reporting.markdown_text import posted

MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def test_it_begins_with_the_run_and_the_cause_and_has_the_fix_as_a_diff(bisect, experiment):
    text = verdict_markdown(bisect.report(experiment=experiment))
    assert text.startswith("### Run gpt-lr-3f9c1a diverged at step 141: learning\\_rate\n")
    assert "```diff\n optimizer:\n-  lr: 3e-2\n+  lr: 0.0075\n```" in text
    assert f"```sh\n{bisect.verdict.next_command}\n```" in text


def test_the_path_and_the_trials_are_folded_and_still_rendered(bisect):
    html = MARKDOWN.render(verdict_markdown(bisect.report()))
    assert html.count("<details>") == html.count("</details>") == 3
    assert "<summary>How it was decided</summary>" in html
    assert html.count("<tr>") == len(bisect.trials) + 1
    assert html.count("<li>") == len(bisect.verdict.path) + len(bisect.verdict.ruled_out)


def test_nothing_is_folded_where_the_viewer_cannot(bisect):
    text = verdict_markdown(bisect.report(), folded=False)
    assert "<details>" not in text
    assert "#### How it was decided" in text


def test_hostile_text_stays_text_and_notifies_nobody(hostile):
    spoiled = replace(hostile.verdict, summary="@everyone see #12, !3, GH-4 and me@example.com")
    text = verdict_markdown(hostile._replace(verdict=spoiled).report())
    outside = re.sub(r"(?ms)^(`{3,}).*?^\1|`[^`\n]*`", "", text)
    assert "<script" not in outside
    assert not re.search(r"(?<![&\w])[@!]\w|\w@\w|\\?#\d|GH-\d", outside)
    assert MARKDOWN.render(text).count("<tr>") == len(hostile.trials) + 1


@pytest.mark.parametrize(
    ("text", "trigger"),
    [
        ("ask @name", "@name"),
        ("see #12", "#12"),
        ("see owner/repo#12", "#12"),
        ("GH-12", "GH-12"),
        ("in GitLab !12", "!12"),
        ("in GitLab ~bug", "~bug"),
        ("in GitLab %v1", "%v1"),
        ("in GitLab &3", "&3"),
        ("www.example.com", "www."),
        ("mail me@example.com", "me@example.com"),
        ("http://example.com", "http://"),
    ],
)
def test_a_reference_is_taken_apart(text, trigger):
    html = MarkdownIt("commonmark").render(posted(text, 200))
    assert trigger not in re.sub(r"&amp;", "&", html).replace("://", ":/ /")
    assert text.replace("&", "&amp;") in html.replace("\u200b", "")


def test_a_long_bisect_stays_below_what_hosts_take(bisect):
    many = [replace(record, number=at) for at, record in enumerate(bisect.trials * 200)]
    path = tuple(replace(node, detail="why " * 400) for node in bisect.verdict.path * 8)
    report = bisect._replace(trials=many, verdict=replace(bisect.verdict, path=path)).report()
    text = verdict_markdown(report)
    assert len(text) <= MOST_CHARACTERS
    assert "more trials not shown" in text
    assert bisect.verdict.next_command in text


@pytest.mark.parametrize(
    ("patch", "diff"),
    [
        ("clip: 1.0  # was not set", "+clip: 1.0"),
        ("clip: 1.0  # was null", "-clip: null\n+clip: 1.0"),
        ("a:\n  b: 2  # was 3", " a:\n-  b: 3\n+  b: 2"),
        ("batch: {size: 4}", "+batch: {size: 4}"),
    ],
)
def test_a_fix_becomes_a_diff(patch, diff):
    assert as_diff(patch) == diff


def test_a_run_without_a_verdict_says_what_is_known_and_what_to_do(bisect):
    steps = [
        StepRecord(step=n, time=0.0, loss=float("nan"), lr=0.1, grad_norm=1.0) for n in range(20)
    ]
    text = run_markdown(
        "gpt-1",
        divergence=bisect.verdict.divergence,
        steps=steps,
        events=[{"step": 3, "message": "layer @x is dead"}, {"rewound_to": 2}],
        experiment="name: gpt",
    )
    assert "### Run gpt-1 diverged at step 141" in text
    assert "stabexp bisect gpt-1" in text
    assert "| 19 | NaN |" in text
    assert "- step 3: layer @\u200bx is dead" in text
    assert "did not diverge in 20 steps" in run_markdown("gpt-1", divergence=None, steps=steps)
