"""What an intervention promises: one dose, one change, the same every time."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stabexp import interventions as changing
from stabexp.interventions import Intervention
from stabexp.testing.promises import check_settings
from stabexp.testing.small_training import facts, replayed, trained


def check_intervention(name: str, dose: Any, *, base: Path | None = None) -> None:
    """Check what every intervention promises.

    Its one setting is `dose`, and it is documented. It answers at least one of the questions of
    `Intervention` differently. A replay with it differs from the run it started from, and two
    replays with it are bit for bit the same.

    Args:
        name: As in the experiment file: `clip_norm`, `ease.py:Ease`, `package.module:Ease`.
        dose: A dose that changes something in an ordinary training.
        base: Folder that file names start from; None: the current one.

    Raises:
        AssertionError: If a promise is broken.
        ConfigError: If it cannot be loaded, or the dose is not allowed.
    """

    def make(arguments: Mapping[str, Any]) -> Intervention:
        return changing.intervention(name, arguments["dose"], base=base)

    made = make({"dose": dose})
    fields = list(type(made).model_fields)
    assert fields == ["dose"], f"{name}: has the settings {fields}; it has one, called dose"
    check_settings(make, name, {"dose": dose})
    plain = dict(_answers(Intervention()))
    changed = [question for question, answer in _answers(made) if answer != plain.get(question)]
    assert changed, f"{name}: answers every question as a replay without it; it changes nothing"
    with tempfile.TemporaryDirectory() as folder:
        run = trained(Path(folder), base=base)
        first, again = (facts(replayed(run, 2, [make({"dose": dose})])) for _ in range(2))
    assert first == again, f"{name}: two replays with the same dose differ"


def _answers(intervention: Intervention) -> Iterator[tuple[str, Any]]:
    """Yield (question, answer) for a training of 1,000 steps with clipping and half precision."""
    kind = type(intervention)
    own = {name for base in kind.__mro__ for name in vars(base)} - set(dir(Intervention.__base__))
    for question in sorted(own - set(kind.model_fields)):
        if question.startswith("_") or not callable(method := getattr(intervention, question)):
            continue
        wanted = inspect.signature(method).parameters
        given: dict[str, Any] = {}
        if "warmup_steps" in wanted:
            given["warmup_steps"] = 10
        if "configured" in wanted:
            given["configured"] = "bf16" if question == "precision" else 1e9
        for step in (*range(10), 500) if "step" in wanted else (None,):
            asked = given if step is None else {"step": step, **given}
            yield f"{question}{asked}", method(**asked)
