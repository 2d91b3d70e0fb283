"""The links of Markdown pages, and where they lead nowhere.

What is below the repository must exist, with its heading where one is named. A link to another host
is only looked at for its form: tests have no network.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token


@dataclass(frozen=True)
class Link:
    """One link or picture of a page."""

    page: Path
    line: int
    target: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.target}"


def links(page: Path) -> list[Link]:
    """Return a page's links and pictures in order; code has none."""
    found = []
    for token in MarkdownIt("commonmark").enable("table").parse(page.read_text("utf-8")):
        line = token.map[0] + 1 if token.map else 0
        for child in token.children or ():
            target = child.attrGet("href") or child.attrGet("src")
            if target is not None:
                found.append(Link(page, line, str(target)))
    return found


def dead(link: Link, *, root: Path) -> str:
    """Return why a link leads nowhere, "" when it does not."""
    parts = urlsplit(link.target)
    if parts.scheme:
        fine = parts.scheme == "https" and re.fullmatch(r"[\w.-]+\.[a-z]{2,}", parts.netloc)
        return "" if fine else "no address of the form https://host/…"
    target = link.page
    if parts.path:
        target = (link.page.parent / unquote(parts.path)).resolve()
        if not target.exists():
            return "there is no such file"
        if not target.is_relative_to(root):
            return "is outside of the repository"
    if parts.fragment and target.suffix == ".md" and parts.fragment not in anchors(target):
        return f"{target.name} has no heading #{parts.fragment}"
    return ""


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, as code hosts make them."""
    seen: dict[str, int] = {}
    found = set()
    for text in _headings(page):
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        found.add(f"{slug}-{count}" if count else slug)
    return frozenset(found)


def _headings(page: Path) -> Iterator[str]:
    tokens = MarkdownIt("commonmark").enable("table").parse(page.read_text("utf-8"))
    for token, inline in pairwise(tokens):
        if token.type == "heading_open":
            yield "".join(_text(child) for child in inline.children or ())


def _text(token: Token) -> str:
    return token.content if token.type in {"text", "code_inline"} else ""
