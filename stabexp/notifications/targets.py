"""The entries of `on_event` in an experiment file: who is told, of what, and how.

An experiment file is copied into the run, its report and MLflow. So a secret is never written into
it: `${NAME}` stands for an environment variable, which is looked up when something is sent and
nowhere else. What looks like a secret in plain text is refused, without being repeated.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, Field, field_validator, model_validator

from stabexp.config import Settings
from stabexp.notifications.secrets import (
    is_loopback,
    looks_secret,
    names_in,
    secret_header,
    without_names,
)

EventName = Literal["divergence", "verdict", "recovery", "warning", "alarm", "end"]
"""divergence: a detector fired · verdict: a bisect named a cause, or none · recovery: a run was
rolled back, and how that ended · warning: a crash is forecast · alarm: a monitor found something,
the first time for each kind · end: the run is over, also when its process died."""

EVENT_NAMES: tuple[EventName, ...] = get_args(EventName)

_REMEDY = "keep it in an environment variable and write ${NAME} here"


def _or_one(schema: dict[str, Any]) -> None:
    """Let an editor accept one entry where a list is meant."""
    several = {key: schema.pop(key) for key in ("type", "items", "minItems") if key in schema}
    schema["anyOf"] = [several, several["items"]]


def _names(value: Any) -> Any:
    """Let `on: verdict` stand for `on: [verdict]`."""
    return [value] if isinstance(value, str) else value


def _text(value: Any) -> Any:
    if value is not None and not isinstance(value, str):
        raise ValueError("expected text")  # without the value, which may be a secret
    return value


def _command(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, (list, tuple)) or not all(isinstance(part, str) for part in value):
        raise ValueError("expected a line for the shell, or a list of words")
    return list(value)


class EventTarget(Settings):
    """Somebody to tell: a web address or a command, exactly one of the two."""

    on: Annotated[list[EventName], BeforeValidator(_names)] = Field(
        ["divergence", "verdict"], min_length=1, json_schema_extra=_or_one
    )
    """What to tell: divergence, verdict, recovery, warning, alarm, end."""

    command: Annotated[list[str] | str | None, BeforeValidator(_command)] = None
    """A program and its arguments, or one line for the shell. It gets the event as STABEXP_…
    variables and on standard input."""

    webhook: Annotated[str | None, BeforeValidator(_text)] = None
    """Where to POST the event: `${NAME}` from the environment, for such an address is a secret."""

    headers: dict[str, str] = Field({})
    """Headers of the request, besides the usual ones: {Authorization: "Bearer ${TOKEN}"}."""

    format: Literal["json", "slack", "text"] = "json"
    """What is sent: all of the event as JSON; {"text": …} as Slack and Mattermost read it; or
    plain text."""

    timeout: float = Field(30.0, gt=0, le=3600)
    """Seconds after which a try counts as failed; a command is ended then."""

    @field_validator("webhook")
    @classmethod
    def _no_secret_address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if "${" in without_names(value):
            raise ValueError("has a ${ without a name in braces after it; write ${NAME}")
        if not names_in(value):
            if not value.lower().startswith(("http://", "https://")):
                raise ValueError(
                    f"expected ${{NAME}}, or an address that begins with http; {_REMEDY}"
                )
            if not is_loopback(value):
                raise ValueError(
                    f"is written out, but whoever has it can write there, and this file is copied "
                    f"into reports and to MLflow; {_REMEDY}"
                )
        if looks_secret(without_names(value)):
            raise ValueError(f"holds a secret in plain text; {_REMEDY}")
        return value

    @field_validator("command")
    @classmethod
    def _no_secret_command(cls, value: list[str] | str | None) -> list[str] | str | None:
        words = [value] if isinstance(value, str) else value or []
        if value is not None and not any(word.strip() for word in words):
            raise ValueError("is empty; name a program")
        if looks_secret(" ".join(without_names(word) for word in words)):
            raise ValueError(f"holds a secret in plain text; {_REMEDY}")
        return value

    @field_validator("headers")
    @classmethod
    def _no_secret_headers(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if any(c in name + text for c in "\r\n") or not name.strip():
                raise ValueError("a header is one line with a name")
            plain = without_names(text)
            if looks_secret(plain) or (secret_header(name) and not names_in(text)):
                raise ValueError(f"{name} holds a secret in plain text; {_REMEDY}")
        return value

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.command is None) == (self.webhook is None):
            raise ValueError("give either command: or webhook:")
        if self.headers and self.webhook is None:
            raise ValueError("headers: are for a webhook; a command has its environment")
        return self

    @property
    def key(self) -> str:
        """12 hexadecimal digits: the same for the same receiver, wherever it stands in the file."""
        kept = self.model_dump(mode="json", include={"command", "webhook", "headers", "format"})
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def shown(self) -> str:
        """What to call it; no secret is in it."""
        if self.webhook is not None:
            return f"webhook {self.webhook}"
        return f"command {self.command if isinstance(self.command, str) else self.command[0]}"  # type: ignore[index]

    @property
    def names(self) -> tuple[str, ...]:
        """The environment variables it takes."""
        texts = [self.webhook or "", *self.headers.values()]
        texts += [self.command] if isinstance(self.command, str) else self.command or []
        return tuple(dict.fromkeys(name for text in texts for name in names_in(text)))


def _entries(value: Any) -> Any:
    """Let one entry stand for a list of one; refuse the rest without repeating it."""
    if value is None:
        return []
    if isinstance(value, dict):
        value = [value]
    known = isinstance(value, (list, tuple))
    if not known or not all(isinstance(each, (dict, EventTarget)) for each in value):
        raise ValueError(
            "expected a list of entries, for example [{on: verdict, webhook: '${NAME}'}]"
        )
    return value


Targets = Annotated[list[EventTarget], BeforeValidator(_entries), Field(json_schema_extra=_or_one)]
