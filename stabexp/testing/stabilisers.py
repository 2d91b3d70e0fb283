"""What a stabiliser promises: a replay with it is exact from every state, and no hook is left."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stabexp import stabilisers as stabilising
from stabexp.stabilisers import Stabiliser
from stabexp.testing.promises import check_settings
from stabexp.testing.small_training import STEPS, Train, classify, facts, replayed, trained


def check_stabiliser(
    name: str,
    args: Mapping[str, Any] | None = None,
    *,
    base: Path | None = None,
    train: Train = classify,
    steps: int = STEPS,
) -> None:
    """Check what every stabiliser promises.

    Its settings are documented. What it remembers is in its `state_dict`: a replay from every state
    of a run with it is bit for bit that run. What it tells has a sentence under "message". No hook
    is left in the model.

    Args:
        name: As in the experiment file: `freeze`, `calm.py:Calm`, `package.module:Calm`.
        args: Its arguments, also as in the file.
        base: Folder that file names start from; None: the current one.
        train: A training in which it acts; the default classifies with a transformer layer.
        steps: How many updates of it.

    Raises:
        AssertionError: If a promise is broken.
        ConfigError: If it cannot be loaded, or an argument is wrong.
    """
    given = dict(args or {})

    def make(arguments: Mapping[str, Any]) -> Stabiliser:
        return stabilising.build({name: arguments}, base=base)[name]

    check_settings(make, name, given)
    with tempfile.TemporaryDirectory() as folder:
        run = trained(Path(folder), train=train, steps=steps, stabilisers={name: given}, base=base)
        assert len(run.records) == steps, f"{name}: only {len(run.records)} of {steps} steps ran"
        for event in run.events:
            told = event.get("message")
            assert isinstance(told, str), f"{name}: an event without a message: {event}"
        for step in range(1, steps):
            for one, again in zip(
                facts(run.records[step:]), facts(replayed(run, step)), strict=True
            ):
                assert one == again, (
                    f"{name}: a replay from step {step} differs: {again}, and in the run {one}; "
                    "return all that it remembers in state_dict()"
                )
