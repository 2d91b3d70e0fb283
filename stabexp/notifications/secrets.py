"""`${NAME}` in a setting: looked up when something is sent, and taken out of all that is told.

What is looked up never leaves this process but to the receiver. Whatever is written down, also what
a receiver or a command answered, goes through `Secrets.hidden` first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

_NAME = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

SHORTEST = 4
"""A value with fewer characters is not taken out of texts: it would take letters out of words."""

_SECRETS = (
    re.compile(r"://[^/\s:@]+:[^/\s@]+@"),
    re.compile(r"(?i)\b(?:bearer|basic|token)\s+[\w.~+/=-]{12,}"),
    re.compile(
        r"(?i)\b[\w-]*(?:password|passwd|secret|token|api[_-]?key)\s*[=:]\s*[^\s\"'&;|]{6,}"
    ),
)
_ADDRESS = re.compile(r"https?://[^\s\"']+")
_LONG_PART = re.compile(r"(?=[^/]*\d)(?=[^/]*[A-Za-z])[\w~+=-]{16,}")
_SECRET_HEADER = re.compile(r"(?i)auth|cookie|token|key|secret|password|signature")


class UnsetError(Exception):
    """An environment variable that is needed is not set; the message has its name."""


@dataclass(frozen=True)
class Secrets:
    """The environment that `${NAME}` is looked up in."""

    environment: Mapping[str, str]

    def resolved(self, text: str) -> str:
        """Return a text with every `${NAME}` replaced.

        Raises:
            UnsetError: If a variable is not set, or empty.
        """

        def value(match: re.Match[str]) -> str:
            found = self.environment.get(match[1], "")
            if not found:
                raise UnsetError(f"{match[1]} is not set")
            return found

        return _NAME.sub(value, text)

    def hidden(self, text: str, names: Iterable[str]) -> str:
        """Return a text in which no value of these variables stands, whole or as a part of one."""
        values = {name: self.environment.get(name, "") for name in names}
        for name, value in sorted(values.items(), key=lambda each: -len(each[1])):
            for part in _parts(value):
                text = text.replace(part, f"${{{name}}}")
        return text


def _parts(value: str) -> list[str]:
    """Return a secret, and what of an address is one by itself: its path, its query, its user."""
    parts = [value] if len(value) >= SHORTEST else []
    if "://" in value:
        try:
            address = urlsplit(value)
        except ValueError:
            return parts
        rest = value.partition("://")[2].partition("/")[2]
        parts += [address.path, rest, address.query, address.password or ""]
        parts += [part for part in address.path.split("/") if len(part) >= 8]
    return sorted({part for part in parts if len(part.strip("/")) >= SHORTEST}, key=len)[::-1]


def names_in(text: str) -> list[str]:
    """Return the variables that a text takes."""
    return _NAME.findall(text)


def without_names(text: str) -> str:
    """Return a text without its `${NAME}`, to be looked at for secrets."""
    return _NAME.sub("", text)


def looks_secret(text: str) -> bool:
    """Whether there is something in a text that looks like a password, a token or a secret path."""
    if any(pattern.search(text) for pattern in _SECRETS):
        return True
    return any(
        _LONG_PART.fullmatch(part)
        for address in _ADDRESS.findall(text)
        for part in re.split(r"[/?&=]", address.partition("://")[2])[1:]
    )


def secret_header(name: str) -> bool:
    """Whether a header of this name usually holds a secret."""
    return _SECRET_HEADER.search(name) is not None


def is_loopback(address: str) -> bool:
    """Whether an address is on this very machine, so that nobody else can use it."""
    try:
        host = urlsplit(address).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
