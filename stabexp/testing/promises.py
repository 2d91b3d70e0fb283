"""What all kinds of plug-ins promise: documented settings that text from a file gives as well."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stabexp.config import Component


def check_settings(
    make: Callable[[Mapping[str, Any]], Component], name: str, args: Mapping[str, Any]
) -> None:
    """Check that a plug-in's settings are documented, and the same from text as from values.

    Args:
        make: Builds the plug-in from arguments, as the experiment file does.
        name: What to call it in messages.
        args: Its arguments.

    Raises:
        AssertionError: If a promise is broken.
    """
    made = make(args)
    kind = type(made)
    assert kind.__doc__, f"{name}: has no docstring; `stabexp list` shows its first line"
    bare = [field for field, info in kind.model_fields.items() if not info.description]
    assert not bare, f"{name}: write what {', '.join(bare)} means as a string under the field"
    text = {
        key: str(value) if isinstance(value, (int, float)) else value for key, value in args.items()
    }
    assert made.model_dump() == make(text).model_dump(), (
        f"{name}: {text} as text from a file gives other settings than {dict(args)}"
    )
