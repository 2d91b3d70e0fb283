"""A replay asked for by hand: which settings it changes, and what can act from a checkpoint.

From step 0 any setting can be changed: the run is made anew with it. A replay from a later
checkpoint goes on with a state that was made with the old settings, so only what acts at the
optimizer, data and autocast boundary can change there, and is expressed as an intervention.
"""

from __future__ import annotations

import typing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stabexp import interventions as changing
from stabexp.config import Document, Settings, guess, key_parts, override, suggest
from stabexp.errors import ConfigError
from stabexp.plugins import is_reference
from stabexp.records import Change

WITHOUT_EFFECT = {"name", "description", "expect", "bisect", "tracking", "on_divergence"}
"""Sections of the experiment file that do not decide a training's course."""
FROM_A_CHECKPOINT = (
    "optimizer.lr",
    "optimizer.weight_decay",
    "schedule.warmup_steps",
    "clip",
    "precision",
    "batch.size",
    "interventions.NAME",
)
"""What can be changed from a checkpoint after step 0."""
_FACTORS = {"optimizer.lr": "learning_rate", "optimizer.weight_decay": "weight_decay"}
_PLUGINS = {"detectors", "monitors", "interventions", "stabilisers"}
_OPTION = "--set"


@dataclass(frozen=True, slots=True, kw_only=True)
class ByHand:
    """What a replay changes: interventions, experiment keys, or both."""

    changes: tuple[Change, ...] = ()
    patch: Mapping[str, Any] = field(default_factory=dict)
    """Dotted experiment keys to set; such a replay starts at step 0."""
    notices: tuple[str, ...] = ()
    """What the user may not expect, one sentence each."""


def changes_by_hand(
    assignments: Sequence[str],
    *,
    settings: Mapping[str, Any],
    keys: Collection[str],
    from_step: int,
    base: Path | None = None,
) -> ByHand:
    """Return what "key=value" assignments ask of a replay.

    Args:
        assignments: As typed: "optimizer.lr=1e-4", "clip=1", "interventions.shuffle=1" or, where
            no setting has this name, "shuffle=1".
        settings: The run's settings by dotted key, those that are null left out.
        keys: The keys there are, as `dotted_keys` lists them.
        from_step: The checkpoint to start from.
        base: Folder that an intervention in a file is named from: the run's.

    Raises:
        ConfigError: If one is no assignment, its key is unknown or given twice, its value is not
            allowed, or it cannot be changed from that checkpoint.
    """
    parts: list[tuple[str, str]] = []
    for text in assignments:
        key, separator, value = text.partition("=")
        if not separator or not all(key_parts(key.strip())):
            raise ConfigError(
                f"{_OPTION} {text}: expected key=value, for example optimizer.lr=1e-4"
            )
        if key.strip() in {known for known, _ in parts}:
            raise ConfigError(f"{_OPTION} {text}: {key.strip()} is given twice; keep one")
        parts.append((key.strip(), value))
    asked = [
        change_for(key, value, settings=settings, keys=keys, from_step=from_step, base=base)
        for key, value in parts
    ]
    return ByHand(
        changes=tuple(change for one in asked for change in one.changes),
        patch={key: value for one in asked for key, value in one.patch.items()},
        notices=tuple(notice for one in asked for notice in one.notices),
    )


def change_for(
    key: str,
    value: str,
    *,
    settings: Mapping[str, Any],
    keys: Collection[str],
    from_step: int,
    base: Path | None = None,
) -> ByHand:
    """Return what one assignment asks of a replay; see `changes_by_hand`."""
    if key not in keys and (key in changing.INTERVENTIONS or _is_own(key)):
        key = f"interventions.{key}"
    _check_key(key, value, settings, keys)
    given = _Assignment(key, value, settings, base=base)
    if key.startswith("interventions."):
        name = key.removeprefix("interventions.")
        notices: tuple[str, ...] = ()
        if key in settings:
            notices = (f"{key} is {settings[key]} in the run already; both apply",)
        return ByHand(changes=(given.change(name, given.typed),), notices=notices)
    if from_step == 0:
        return ByHand(patch={key: given.value})
    changed = _from_checkpoint(given, from_step)
    if changed is None:
        raise given.error(
            f"can only be changed from the start: add --from 0. From step {from_step} can be "
            f"changed: {', '.join(FROM_A_CHECKPOINT)}"
        )
    return changed


def _from_checkpoint(given: _Assignment, from_step: int) -> ByHand | None:
    """Return the interventions that do what is asked, None when there are none for it."""
    if given.key in _FACTORS:
        return given.factor(_FACTORS[given.key])
    match given.key:
        case "schedule.warmup_steps":
            return _warmup(given, from_step)
        case "clip":
            return _clip(given)
        case "precision":
            return ByHand(changes=(given.change("precision", given.typed),))
        case "batch.size":
            return _batch_size(given)
    return None


class _Assignment:
    """One key and its value, typed as YAML types it, beside what the run has."""

    def __init__(
        self, key: str, text: str, settings: Mapping[str, Any], *, base: Path | None = None
    ) -> None:
        self.key, self.text, self.base = key, text, base
        self.was = settings.get(key)
        self.settings = settings
        try:
            values: Any = override(Document("", {}), [f"{key}={text}"]).values
        except ConfigError as error:
            raise ConfigError(str(error).replace("-o ", f"{_OPTION} ", 1)) from None
        for part in key_parts(key):
            values = values[part]
        self.typed: Any = values
        """As typed, for what is declared with a type."""
        self.value: Any = guess(values)
        """As YAML 1.2 would type it, for what is not."""

    def error(self, problem: str) -> ConfigError:
        return ConfigError(f"{_OPTION} {self.key}={self.text}: {problem}")

    def number(self) -> float:
        if isinstance(self.value, bool) or not isinstance(self.value, (int, float)):
            raise self.error("expected a number")
        return float(self.value)

    def change(self, variable: str, dose: Any) -> Change:
        """Return the change, its dose checked and typed by the intervention itself."""
        try:
            made = changing.intervention(variable, dose, base=self.base)
        except ConfigError as error:
            problem = str(error).removeprefix("interventions.").removeprefix(f"{variable}.dose: ")
            raise self.error(problem) from None
        return Change(variable=variable, dose=made.model_dump()["dose"])

    def factor(self, variable: str) -> ByHand:
        """Return the change by which the run's own value becomes the one asked for."""
        wanted = self.number()
        if not self.was:
            raise self.error(
                f"the run's own value is {self.was if self.was is not None else 'not known'}, "
                "which no factor brings there; add --from 0 to run it from the start"
            )
        return ByHand(changes=(self.change(variable, wanted / float(self.was)),))


def _is_own(key: str) -> bool:
    """Say whether a key is the name of an intervention in a file: "ease.py:Ease"."""
    return is_reference(key) and key.partition(".")[0] not in _PLUGINS


def _warmup(given: _Assignment, from_step: int) -> ByHand:
    if given.settings.get("schedule.name") == "one_cycle":
        raise given.error("one_cycle has its own rise; set schedule.peak, with --from 0")
    change = given.change("warmup", given.typed)
    notices: tuple[str, ...] = ()
    if int(change.dose) > from_step:
        notices = (
            f"the ramp is at {(from_step + 1) / int(change.dose):.0%} of the rate at step "
            f"{from_step}: from there it is a cut of the rate that ends, not a warmup",
        )
    elif from_step >= int(given.was or 0):
        notices = (f"both ramps are over at step {from_step}, so this changes nothing",)
    return ByHand(changes=(change,), notices=notices)


def _clip(given: _Assignment) -> ByHand:
    if given.value is None:
        raise given.error("clipping can be added from a checkpoint, not removed; add --from 0")
    change = given.change("clip_norm", given.typed)
    if given.was is not None and float(change.dose) > float(given.was):
        raise given.error(
            f"the run clips at {given.was:g}, and from a checkpoint it can only clip more; "
            "add --from 0"
        )
    return ByHand(changes=(change,))


def _batch_size(given: _Assignment) -> ByHand:
    own = int(given.was or 0)
    multiple = given.number() / own if own else 0.0
    if multiple < 1 or not multiple.is_integer():
        raise given.error(
            f"from a checkpoint the batch can only be a multiple of the run's {own} samples, for "
            f"example {2 * own} or {4 * own}; add --from 0 for any other size"
        )
    # Of several multiples the largest counts, so the run's own one goes into it.
    already = int(given.settings.get("interventions.batch_size", 1))
    return ByHand(changes=(given.change("batch_size", int(multiple) * already),))


def _check_key(key: str, value: str, settings: Mapping[str, Any], keys: Collection[str]) -> None:
    place = f"{_OPTION} {key}={value}"
    section = key.partition(".")[0]
    if key not in keys and not any(
        known.endswith(".*") and key.startswith(known.removesuffix("*")) for known in keys
    ):
        inside = [known for known in keys if known.startswith(f"{section}.")]
        plain = [known for known in keys if not known.endswith(".*")]
        hint = suggest(key, inside or [*plain, *changing.INTERVENTIONS])
        if not inside and hint.startswith("allowed"):
            hint = "stabexp schema lists them"
        raise ConfigError(f"{place}: unknown key; {hint}")
    if section in WITHOUT_EFFECT:
        raise ConfigError(f"{place}: does not decide how the training goes; leave it out")
    own_loop = any(known.startswith("train.") for known in settings)
    instead = {
        "optimizer.lr": "interventions.learning_rate=FACTOR",
        "optimizer.weight_decay": "interventions.weight_decay=FACTOR",
        "schedule.warmup_steps": "interventions.warmup=STEPS",
        "batch.size": "interventions.batch_size=FACTOR",
    }
    if own_loop and (key in instead or section in {"optimizer", "schedule"}):
        other = instead.get(key, "its arguments, train.args.NAME=VALUE")
        raise ConfigError(
            f"{place}: the run's own training function decides this; set {other} instead"
        )


def dotted_keys(kind: type[Settings]) -> tuple[str, ...]:
    """Return every key of a section, dotted; "task.args.*" where a key takes names of its own."""
    found: list[str] = []
    for key, info in kind.model_fields.items():
        found.append(key)
        inner = _section(info.annotation)
        if inner is not None:
            found += [f"{key}.{deeper}" for deeper in dotted_keys(inner)]
        elif isinstance(info.default, dict):
            found.append(f"{key}.*")
    return tuple(found)


def _section(annotation: Any) -> type[Settings] | None:
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return annotation
    inner = (_section(part) for part in typing.get_args(annotation))
    return next((section for section in inner if section is not None), None)
