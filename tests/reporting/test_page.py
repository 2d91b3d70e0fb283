from __future__ import annotations

import itertools
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from stabexp.records import StepRecord
from stabexp.reporting import verdict_page
from stabexp.reporting.figures import legend

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(HTMLParser):
    """A page read strictly: every element closed in order, ids and texts collected."""

    def __init__(self, html):
        super().__init__()
        self.open, self.ids, self.headings, self.attributes, self.text = [], [], [], [], ""
        self.tags = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id"]
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open[-1] == tag, f"</{tag}> closes <{self.open[-1]}>"
        self.open.pop()

    def handle_data(self, data):
        if not {"script", "style"} & set(self.open):
            self.text += data


def page_of(bisect, **options):
    html = verdict_page(bisect.report(**options))
    return html, Page(html)


def test_the_page_is_whole_and_its_headings_are_in_order(bisect, experiment):
    _, page = page_of(bisect, experiment=experiment, fingerprint={"torch": "2.9"})
    assert page.headings[0] == 1
    assert page.headings.count(1) == 1
    assert all(b - a <= 1 for a, b in zip(page.headings, page.headings[1:], strict=False))
    assert len(page.ids) == len(set(page.ids))
    assert {"header", "main", "footer", "caption"} <= set(page.tags)


def test_every_reference_inside_the_page_leads_somewhere(bisect):
    _, page = page_of(bisect)
    for _, name, value in page.attributes:
        if name == "href" and value.startswith("#"):
            assert value[1:] in page.ids
        if name in {"aria-labelledby", "aria-describedby", "data-copy"}:
            assert set(value.split()) <= set(page.ids)


def test_the_only_addresses_are_the_links_that_were_given(bisect):
    key = bisect.trials[0].spec.key
    link = f"http://localhost:5000/#/experiments/1/runs/{key}?workflowType=machine_learning"
    html, _ = page_of(bisect, links={key: link, bisect.trials[1].spec.key: "javascript:alert(1)"})
    assert re.findall(r"https?://[^\"'<\s]+", html) == [link]
    assert not re.search(r"javascript:|@import|url\(|src=", html)


def test_the_page_says_what_the_verdict_says(bisect, experiment):
    _, page = page_of(bisect, experiment=experiment)
    verdict = bisect.verdict
    for text in [
        verdict.summary,
        "0.93 (of verdicts with this evidence, about 93 in 100 are right)",
        *(node.question for node in verdict.path),
        *(node.detail for node in verdict.path),
        *(item.why for item in verdict.ruled_out),
        "Cures the symptom, is not the cause,",
        "×0.25 is the mildest robust cure; ×0.5 does not cure",
        "lr: 0.0075  # was 3e-2",
        "Proved: the run with the fix passed the horizon, went on and learned.",
        verdict.next_command,
        f"stabexp bisect {verdict.run_id}",
    ]:
        assert text in page.text
    assert page.tags.count("svg") > 4


def test_hostile_text_stays_text(hostile):
    html, page = page_of(
        hostile, experiment="<script>alert(1)</script>: 1", fingerprint={"<b>": "\x00<i>"}
    )
    assert page.tags.count("script") == 1
    assert "b" not in page.tags
    assert "<script>alert(1)</script>" in page.text
    assert "学习率过高" in page.text
    assert not {"\x1b", "\x00", "\u202e"} & set(html)


@pytest.mark.parametrize("keep", [0, 1], ids=["no trial", "only a control"])
def test_a_bisect_that_stopped_early_has_a_page(bisect, keep):
    early = bisect._replace(
        verdict=replace(
            bisect.verdict,
            cause="not_reproduced",
            path=bisect.verdict.path[:keep],
            cures=(),
            ruled_out=(),
            fix={},
            next_command="",
        ),
        trials=bisect.trials[:keep],
        steps=[],
        trial_steps={},
    )
    _, page = page_of(early)
    assert "There is no fix to offer." in page.text
    assert "not_reproduced" in page.text


def _luminance(colour):
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(share * c for share, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_every_text_colour_has_contrast_4_5_on_every_ground(bisect, scheme):
    html, _ = page_of(bisect)
    colours = dict(
        re.findall(r"--([\w-]+): (#\w{6})", re.findall(r":root \{(.*?)\}", html, re.DOTALL)[scheme])
    )
    texts = {"ink", "soft", "link", "cured", "diverged", "delayed", "stalled", "inconclusive"}
    for name in texts | {"placebo", "control", "before", "onset", "end"}:
        for ground in ("paper", "card"):
            low, high = sorted([_luminance(colours[name]), _luminance(colours[ground])])
            assert (high + 0.05) / (low + 0.05) >= 4.5, (name, ground)


@pytest.mark.parametrize(
    "kind", ["data", "texts", "implementation", "inconclusive", "contradicted", "silent"]
)
def test_every_kind_of_verdict_has_a_whole_page(cases, kind):
    report = cases[kind]()
    page = Page(verdict_page(report))
    assert len(page.ids) == len(set(page.ids))
    assert all(b - a <= 1 for a, b in itertools.pairwise(page.headings))
    assert report.verdict.summary in page.text


def test_control_and_placebo_have_a_group_of_their_own_in_the_legend(bisect):
    groups = {group.name: group for group in legend(bisect.trials)}
    names = [entry.text.split(",")[0] for entry in groups["Control and placebo"].entries]
    assert names == ["00 control", "01 placebo", "02 placebo"]


def test_a_bisect_of_200_trials_stays_small_and_says_what_is_left_out(cases):
    html = verdict_page(cases["large"]())
    assert len(html.encode()) < 2_000_000
    page = Page(html)
    assert page.tags.count("tr") > 200
    assert "Of 199 trials 48 are drawn" in page.text
    assert "each curve has at most" in page.text


def test_a_run_of_200000_steps_stays_small_and_keeps_its_spike(bisect):
    steps = [
        StepRecord(step=at, time=0.0, loss=40.0 if at == 77_777 else 2.0, lr=0.1, grad_norm=1.0)
        for at in range(200_000)
    ]
    late = replace(bisect.verdict.divergence, onset=199_000, detected=199_900)
    verdict = replace(bisect.verdict, good_step=0, divergence=late)
    html = verdict_page(bisect._replace(steps=steps, verdict=verdict).report())
    assert len(html.encode()) < 400_000
    run = re.search(r'class="curve run" data-key="run">.*?class="line" d="([^"]*)"', html)[1]
    heights = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", run)]
    assert min(heights) < sorted(heights)[1] - 20


def test_the_horizon_is_that_of_the_doses_not_of_a_ramp_a_scan_or_a_proof(bisect):
    longer = [
        replace(record, spec=replace(record.spec, until_step=900))
        if record.spec.role == "proof" or record.spec.variable == "warmup"
        else record
        for record in bisect.trials
    ]
    html, _ = page_of(bisect._replace(trials=longer))
    assert ">horizon 250<" in html
