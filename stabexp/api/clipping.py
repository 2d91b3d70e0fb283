"""`clip_advice`: what to clip to, by the gradient norms of any run's healthy steps."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from stabexp import detectors as detection
from stabexp import experiment as experiments
from stabexp.api.runs import experiment_of, not_a_run, observed_loop
from stabexp.api.sources import foreign_log, own_run
from stabexp.detectors.good import MARGIN
from stabexp.errors import ConfigError, StabexpError
from stabexp.tracking import DEFAULT_ROOT, RunDirectory

if TYPE_CHECKING:
    from stabexp.advice import ClipAdvice
    from stabexp.diagnosis import Quantity


def clip_advice(
    source: str | Path,
    *,
    root: Path | str = DEFAULT_ROOT,
    tracking_uri: str | None = None,
    loss: str | None = None,
    grad_norm: str | None = None,
) -> ClipAdvice:
    """Return what a run should clip to, and what other norms would have done.

    Only steps before a divergence count, and norms from before clipping.

    Args:
        source: As for `stabexp.diagnose`: a run's id, an MLflow run id, or a log of any trainer.
        root: Where our runs are kept.
        tracking_uri: Where MLflow keeps a run that is not ours.
        loss, grad_norm: Names in the log, where the usual ones are not used.

    Raises:
        RunNotFoundError: If there is neither a run nor a file of this name.
        ConfigError: If the log has no gradient norms from before clipping, or too few.
    """
    from stabexp.advice import advise_clip
    from stabexp.advice.adaptive import adaptive_limiters

    adaptive = adaptive_limiters()
    ours = own_run(source, Path(root))
    if ours is not None:
        points, notices = _own_norms(ours)
        return advise_clip(
            list(points.items()),
            ours.run_id,
            configured=_configured(ours, notices),
            adaptive=adaptive,
            notices=notices,
        )
    names: dict[Quantity, str | None] = {"loss": loss, "grad_norm": grad_norm}
    chosen = {quantity: name for quantity, name in names.items() if name is not None}
    points, notices, configured = _norms_of_log(str(source), chosen, tracking_uri, Path(root))
    return advise_clip(
        list(points.items()),
        str(source),
        configured=configured,
        adaptive=adaptive,
        notices=notices,
    )


def command_to_clip(source: str | Path, limit: float, *, root: Path | str = DEFAULT_ROOT) -> str:
    """Return what to type to follow the advice: to train anew, or to replay what diverged.

    "" for a run that is not ours.
    """
    ours = own_run(source, Path(root))
    if ours is None:
        return ""
    if ours.divergence() is not None:
        where = () if Path(root) == DEFAULT_ROOT else ("--root", str(root))
        return shlex.join(("stabexp", "replay", *where, ours.run_id, "--set", f"clip={limit:g}"))
    source_of = ours.read_json(experiments.SOURCE)
    return shlex.join((*experiments.command_of(source_of), "-o", f"clip={limit:g}"))


def _own_norms(directory: RunDirectory) -> tuple[Mapping[int, float], list[str]]:
    if directory.kind != "run":
        raise not_a_run(directory.run_id, directory)
    found = directory.divergence()
    records = directory.read_steps()
    kept = [r for r in records if found is None or r.step < found.onset - MARGIN]
    notices = []
    if found is not None:
        notices.append(
            f"the run diverged from step {found.onset}; only the steps up to {MARGIN} before count"
        )
    return {record.step: record.grad_norm for record in kept}, notices


def _configured(directory: RunDirectory, notices: list[str]) -> float | None:
    try:
        experiment, _ = experiment_of(directory)
        setup = experiments.setup_of(experiment, observed=observed_loop(directory))
    except StabexpError as error:
        notices.append(f"how it was configured is not known: {error}")
        return None
    return setup.clip_norm


def _norms_of_log(
    source: str, chosen: Mapping[Quantity, str], tracking_uri: str | None, root: Path
) -> tuple[Mapping[int, float], list[str], float | None]:
    from stabexp.diagnosis import diagnose_log, keeper
    from stabexp.diagnosis.curves import curves_of

    log = foreign_log(source, keeper(chosen), tracking_uri=tracking_uri, root=root)
    curves = curves_of(log, source, chosen)
    if "grad_norm" not in curves.found:
        raise ConfigError(
            f"{source}: no gradient norm in it; there are "
            f"{', '.join(curves.others) or 'no other curves'}. If one of them is the norm before "
            "clipping, say so: --grad-norm NAME"
        )
    if curves.clipped:
        raise ConfigError(
            f"{source}: {curves.found['grad_norm'].name!r} was recorded after clipping, so what is "
            "usual cannot be told from it; log what clip_grad_norm_ returns"
        )
    found = diagnose_log(
        log, source, chosen=chosen, detectors=detection.build({}), settings={}
    ).divergence
    points = curves.found["grad_norm"].points
    notices = []
    if found is not None:
        points = {s: n for s, n in points.items() if s < found.onset - MARGIN * curves.interval}
        notices.append(f"the run diverged from step {found.onset}; only earlier steps count")
    if curves.averaged:
        notices.append("a point is a mean over several steps, so bursts are larger than they look")
    clip = curves.settings.get("clip_norm")
    return points, notices, None if clip is None else float(clip)
