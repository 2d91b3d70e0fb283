"""Settings given by name in Python, as the `key.sub=value` texts of the command line.

`stabexp.run(train, batch={"size": 8}, args={"lr": 0.5})` is `stabexp run train.py:train
-o batch.size=8 -o train.args.lr=0.5`, so the one can be printed as the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from stabexp.config import guess
from stabexp.errors import ConfigError
from stabexp.plugins import is_reference


def assignments_of(settings: Mapping[str, Any], *, arguments_of: str) -> list[str]:
    """Return settings as "key.sub=value" texts that mean exactly the same values.

    Args:
        settings: Plain values by name, sections as mappings.
        arguments_of: The section that `args` belong to: "train" or "task".

    Raises:
        ConfigError: If a value is not plain: it has to be written down for the replays.
    """
    found: list[str] = []
    for key, value in settings.items():
        if key == "args":
            if not isinstance(value, Mapping):
                raise ConfigError(
                    f"args={value!r}: expected a mapping, for example args={{'lr': 1}}"
                )
            for name, item in value.items():
                place = f"args.{_key(name, 'args')}"
                found.append(f"{arguments_of}.{place}={as_yaml(_plain(item, place))}")
        else:
            found += _flat(key, value)
    return found


def _flat(place: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _flat(f"{place}.{_key(key, place)}", item)
    else:
        yield f"{place}={as_yaml(_plain(value, place))}"


def _key(key: Any, place: str) -> str:
    own = isinstance(key, str) and is_reference(key) and "=" not in key
    if not own and (not isinstance(key, str) or not key or set(key) & set(".= ")):
        raise ConfigError(f"{place}: {key!r} cannot be the name of a setting; take a plain word")
    return str(key)


def as_yaml(value: Any, *, block: bool = False) -> str:
    """Return plain values as YAML that is read back as those values, on one line or as a block."""
    dumped = yaml.dump(
        value,
        Dumper=_Dumper,
        default_flow_style=not block,
        sort_keys=False,
        allow_unicode=True,
        width=math.inf,
    )
    return dumped if block else dumped.removesuffix("\n").removesuffix("\n...")


def _plain(value: Any, place: str) -> Any:
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(item, f"{place}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{place}.{index}") for index, item in enumerate(value)]
    if value is None:
        return None
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)  # also what is derived from it, as numpy's float64 is
    raise ConfigError(
        f"{place}: a value of type {type(value).__name__} cannot be written down for the replays; "
        "give numbers, text, lists and mappings, and make the object in the function"
    )


class _Dumper(yaml.SafeDumper):
    """Quotes whatever text would be read back as something else."""


def _text_node(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    stays = guess(text) == text and "\n" not in text
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if stays else '"')


_Dumper.add_representer(str, _text_node)
