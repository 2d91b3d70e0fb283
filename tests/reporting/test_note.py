from __future__ import annotations

import re
from dataclasses import replace

from markdown_it import MarkdownIt

from stabexp.records import Change
from stabexp.reporting import verdict_note
from stabexp.reporting.note import MOST_CHARACTERS, MOST_ROWS

MARKDOWN = MarkdownIt("commonmark").enable("table")


def test_the_first_heading_is_the_verdict(bisect, experiment):
    note = verdict_note(bisect.report(experiment=experiment))
    assert note.startswith("### The learning rate is too high")
    assert "```yaml\noptimizer:\n  lr: 0.0075  # was 3e-2\n```" in note
    assert f"```\n{bisect.verdict.next_command}\n```" in note
    # People act on the fix, so it comes before how it was found.
    assert note.index("#### Fix") < note.index("#### How it was decided")


def test_the_note_shows_a_picture_and_links_to_what_it_leaves_out(bisect):
    links = (("The report", "#/r(1)"), ("evil", "javascript:alert(1)"))
    html = MARKDOWN.render(verdict_note(bisect.report(), links=links, picture="get-artifact?x=1"))
    assert '<a href="#/r%281%29">The report</a>' in html
    assert '<img src="get-artifact?x=1"' in html
    assert "javascript" not in html


def test_a_markdown_reader_finds_the_path_the_table_and_the_links(bisect):
    links = {record.spec.key: f"http://h/(x)|{record.number}" for record in bisect.trials}
    html = MARKDOWN.render(verdict_note(bisect.report(links=links)))
    assert html.count("<tr>") == len(bisect.trials) + 1
    assert html.count("<li>") == len(bisect.verdict.path) + len(bisect.verdict.ruled_out)
    assert html.count('<a href="http://h/') == len(bisect.trials)
    assert "<td>learning_rate ×0.25</td>" in html


def test_hostile_text_stays_text(hostile):
    note = verdict_note(hostile.report(links={hostile.trials[0].spec.key: "x y"}))
    outside_code = re.sub(r"(?ms)^(`{3,}).*?^\1", "", note)
    assert "<script" not in outside_code
    html = MARKDOWN.render(note)
    assert "<script" not in html
    assert html.count("<tr>") == len(hostile.trials) + 1
    assert "学习率过高" in html


def test_a_javascript_link_is_left_out(bisect):
    links = {record.spec.key: "javascript:alert(1)" for record in bisect.trials}
    assert "javascript" not in verdict_note(bisect.report(links=links))


def test_a_long_bisect_is_cut_to_what_mlflow_keeps(bisect):
    many = [replace(record, number=at) for at, record in enumerate(bisect.trials * 20)]
    note = verdict_note(bisect._replace(trials=many).report())
    assert note.count("\n| ") <= MOST_ROWS + 1
    assert "295 more trials: see the full report." in note
    assert len(note) <= MOST_CHARACTERS


def test_however_long_the_words_the_note_keeps_the_verdict_and_the_fix(bisect):
    path = tuple(replace(node, detail="why " * 900) for node in bisect.verdict.path * 9)
    changes = tuple(Change(variable="v" * 90, dose="d" * 90) for _ in range(9))
    wide = [replace(record, spec=replace(record.spec, changes=changes)) for record in bisect.trials]
    note = verdict_note(
        bisect._replace(verdict=replace(bisect.verdict, path=path), trials=wide).report(
            experiment="x" * 9999
        )
    )
    assert len(note) <= MOST_CHARACTERS
    assert note.startswith("### The learning rate")
    assert "lr: 0.0075" in note
