"""`warn`: what the early warning would have said of a run after the fact, also of a foreign log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stabexp.api.sources import foreign_log, own_run
from stabexp.errors import ConfigError
from stabexp.tracking import DEFAULT_ROOT

if TYPE_CHECKING:
    from stabexp.prediction import Outlook


def warn(
    source: str | Path,
    *,
    root: Path | str = DEFAULT_ROOT,
    tracking_uri: str | None = None,
) -> Outlook:
    """Return what the early warning would have said, and when, judged step by step.

    Args:
        source: As for `diagnose`: a run's id, one in MLflow, or a log's file or folder. Of a log
            that holds every tenth step, trends are measured in its points.
        root: Where our runs are kept.
        tracking_uri: Where MLflow keeps a run that is not ours.

    Raises:
        RunNotFoundError: If there is neither a run nor a file of this name.
        ConfigError: If the log cannot be used, or has no steps.
        TrackingError: If MLflow cannot be read.
    """
    from stabexp.prediction import outlook_of

    ours = own_run(source, Path(root))
    if ours is not None:
        records = ours.read_steps()
        name = ours.run_id
    else:
        from stabexp.diagnosis.curves import curves_of, keeper
        from stabexp.diagnosis.step_records import step_records

        log = foreign_log(source, keeper({}), tracking_uri=tracking_uri, root=Path(root))
        curves = curves_of(log, str(source))
        records = step_records(curves, list(curves.loss.points))
        name = str(source)
    if not records:
        raise ConfigError(f"{name}: has no steps yet; nothing can be said of it")
    return outlook_of(records, name)
