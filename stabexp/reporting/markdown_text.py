"""Text in Markdown in which nothing means anything but what we mean by it."""

from __future__ import annotations

import re

from stabexp.reporting.words import one_line

_UNSEEN = "\N{ZERO WIDTH SPACE}"

_REFERENCE = re.compile(
    r"(?<!&)([@#!~%$&])(?=[\w\"'])"  # @name, #12; in GitLab also !12, ~label, %milestone, $1, &2
    r"|\b(GH)(?=-\d)"
    r"|\b(www)(?=\.)",
    re.IGNORECASE,
)


def prose(text: str, most: int) -> str:
    """Return one line of plain text in which no character means anything to Markdown or HTML."""
    line = one_line(text)
    if len(line) > most:
        line = line[: most - 1] + "…"
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    line = re.sub(r"([\\`*_{}\[\]|#~])", r"\\\1", line)
    # A name like http://… must not become a link that nobody meant.
    return re.sub(r"(?i)\b(https?|ftp)://", r"\1:&#47;&#47;", line)


def posted(text: str, most: int) -> str:
    """Return the same for an issue or a pull request: it notifies nobody and refers to nothing.

    Hosts look for `@name` and `#12` after they have rendered the Markdown, so a backslash does not
    help; an unseen character after the sign does.
    """
    line = one_line(text)
    line = line if len(line) <= most else line[: most - 1] + "…"
    return prose(_REFERENCE.sub(lambda found: found[0] + _UNSEEN, line), 2 * most + 1)


def fence(text: str, language: str) -> str:
    """Return text as a block of code that nothing inside can end."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    marks = "`" * max(3, longest + 1)
    return f"{marks}{language}\n{text}\n{marks}"


def address_in(address: str) -> str:
    """Return a safe address as it may stand between a link's parentheses."""
    for char, code in (("(", "%28"), (")", "%29"), (" ", "%20"), ("|", "%7C"), ("<", "%3C")):
        address = address.replace(char, code)
    return address.replace(">", "%3E").replace("\\", "%5C")
