"""No page leads nowhere."""

from __future__ import annotations

import pytest
from docs.links import dead, links
from docs.snippets import ROOT, pages


@pytest.mark.parametrize("page", [*pages(), "CHANGELOG.md"])
def test_every_link_leads_somewhere(page):
    path = ROOT / page
    assert [f"{link}: {why}" for link in links(path) if (why := dead(link, root=ROOT))] == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("[x](gone.md)", "there is no such file", id="a page"),
        pytest.param("![x](gone.png)", "there is no such file", id="a picture"),
        pytest.param("| a |\n| --- |\n| [x](gone.md) |", "there is no such file", id="in a table"),
        pytest.param("[x](other.md#gone)", "other.md has no heading #gone", id="a heading"),
        pytest.param("# Here\n\n[x](#there)", "page.md has no heading #there", id="in the page"),
        pytest.param("[x](../outside.md)", "is outside of the repository", id="outside"),
        pytest.param("[x](http://plain)", "no address of the form", id="an address"),
    ],
)
def test_a_dead_link_is_found(text, why, tmp_path):
    (tmp_path / "outside.md").write_text("", "utf-8")
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "other.md").write_text("# A heading\n", "utf-8")
    (folder / "page.md").write_text(text, "utf-8")
    (link,) = links(folder / "page.md")
    assert why in dead(link, root=folder.resolve())


@pytest.mark.parametrize(
    "text", ["[x](other.md#a-heading-with-code)", "[x](other.md)", "[x](https://example.org/a)"]
)
def test_a_living_link_passes(text, tmp_path):
    (tmp_path / "other.md").write_text("# A heading: with `code`!\n", "utf-8")
    (tmp_path / "page.md").write_text(text, "utf-8")
    (link,) = links(tmp_path / "page.md")
    assert dead(link, root=tmp_path.resolve()) == ""
