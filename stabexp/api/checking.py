"""Try a training for a few updates before it begins, and say what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stabexp import experiment as experiments
from stabexp.api.runs import refuse_while_loading
from stabexp.errors import ConfigError
from stabexp.experiment.references import is_reference
from stabexp.preflight import Preflight

UPDATES = 8


def check_setup(
    what: Path | str | Callable[..., Any],
    overrides: Sequence[str] = (),
    *,
    updates: int = UPDATES,
    **settings: Any,
) -> Preflight:
    """Try what an experiment file says, or a training function, for a few updates.

    Nothing is recorded: no run directory, no MLflow. What the training function itself writes, it
    writes.

    Args:
        what: The experiment file, `path/to/file.py:function`, `package.module:function`, or a
            function that takes a `stabexp.Run`.
        overrides: "key.sub=value" settings that replace the file's.
        updates: How many updates to make; what takes longer to show is not found.
        settings: Keys of the experiment file, as `stabexp.run` takes them.

    Raises:
        ConfigError: If the file, the function or a setting is wrong.
        NotReplayableError: If the loop is one that stabexp cannot watch.
    """
    refuse_while_loading("stabexp.check_setup")
    if updates < 1:
        raise ConfigError(f"check: updates: {updates} is not above 0; {UPDATES} are usual")
    given = experiments.given(what, overrides, settings)
    from stabexp.preflight.dry_run import examine

    program = experiments.program(given.experiment, base=given.base, with_code=False)
    return examine(program, updates=updates)


def is_setup(text: str) -> bool:
    """Say whether a text names a training that has not begun, and not a recorded run."""
    if is_reference(text) or Path(text).is_file():
        return True
    return Path(text).suffix in {".yaml", ".yml", ".py"}
