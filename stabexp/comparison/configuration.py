"""Which settings two runs differ in, and the patches that carry some of them over.

A setting is what can be changed by itself. Most keys are one. A task and its arguments are not: the
arguments of one are unknown to the other, so they move together, and so do an optimizer or a
schedule and its arguments, and whatever a plug-in is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from stabexp.config import key_parts

Flat = Mapping[str, Any]
"""Dotted key → value, keys that are null left out."""

_LIKELY = ("optimizer", "schedule", "clip", "precision", "batch", "interventions", "task", "train")
"""Sections by how often they are the reason: the search prefers earlier ones."""
_OPTIONAL = {"task", "train", "optimizer"}
"""Sections that a run can do without; the others are empty then."""
_OPEN = {"detectors", "monitors"}
"""Sections that map plug-in names to arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDifference:
    """One key in which two runs differ."""

    key: str
    first: Any
    """None when the first run leaves it unset."""
    second: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Keys that only make sense together; most settings have one key."""

    name: str
    """The key, or the section the keys are in."""
    keys: tuple[str, ...]


def differing_keys(first: Flat, second: Flat) -> tuple[KeyDifference, ...]:
    """Return every key in which two configurations differ, in the order of the experiment file."""
    return tuple(
        KeyDifference(key=key, first=first.get(key), second=second.get(key))
        for key in dict.fromkeys((*first, *second))
        # 1 and True are not the same setting, nor are 1 and 1.0 for a task of one's own.
        if repr(first.get(key)) != repr(second.get(key))
        # An empty section beside one that is not: what is in the other one is the difference.
        and {} not in (first.get(key), second.get(key))
    )


def settings_of(good: Flat, bad: Flat) -> tuple[Setting, ...]:
    """Return what two configurations differ in as settings, the likely reasons first."""
    members: dict[str, list[str]] = {}
    together = _whole_sections(good, bad)
    for difference in differing_keys(good, bad):
        members.setdefault(_setting(difference.key, together), []).append(difference.key)
    for name in members.keys() & set(together.values()):
        members[name] = [
            key for key in dict.fromkeys((*good, *bad)) if _setting(key, together) == name
        ]
    made = [Setting(name=name, keys=tuple(keys)) for name, keys in members.items()]
    return tuple(sorted(made, key=lambda setting: _likelihood(setting.name)))


def patch_for(settings: Iterable[Setting], good: Flat, bad: Flat) -> dict[str, Any]:
    """Return the dotted keys to set so that the good run has the bad one's values of `settings`.

    A key that the bad run does not have cannot be unset by itself, so its section is set whole.
    """
    taken = {key for setting in settings for key in setting.keys}
    wanted = {key: value for key, value in good.items() if key not in taken}
    wanted |= {key: bad[key] for key in taken if key in bad}
    patch: dict[str, Any] = {}
    for key in sorted(taken):
        section = key.partition(".")[0]
        if key == section:
            patch[key] = bad.get(key)
        elif all(other in bad for other in taken if other.startswith(f"{section}.")):
            patch[key] = bad[key]
        else:
            patch[section] = _nested(wanted, section) or (None if section in _OPTIONAL else {})
    return patch


def _whole_sections(good: Flat, bad: Flat) -> dict[str, str]:
    """Return section → the setting it is part of, for those whose keys move together."""
    together = {
        section: section
        for section in ("task", "train", "optimizer", "schedule")
        if good.get(f"{section}.name") != bad.get(f"{section}.name")
    }
    if "train" in together:  # one of the two has a task: with it comes its optimizer
        together |= dict.fromkeys(("task", "train", "optimizer", "schedule"), "task")
    return together


def _setting(key: str, together: Mapping[str, str]) -> str:
    parts = key_parts(key)
    if parts[0] in together:
        return together[parts[0]]
    if parts[0] in _OPEN:
        return ".".join(parts[:2])
    return key


def _likelihood(name: str) -> int:
    section = name.partition(".")[0]
    return _LIKELY.index(section) if section in _LIKELY else len(_LIKELY) + (section == "seed")


def _nested(flat: Flat, section: str) -> dict[str, Any]:
    """Return the keys of a section as nested values."""
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        if not key.startswith(f"{section}."):
            continue
        *parents, last = key_parts(key)[1:]
        branch = tree
        for part in parents:
            branch = branch.setdefault(part, {})
        branch[last] = dict(value) if isinstance(value, dict) else value
    return tree
