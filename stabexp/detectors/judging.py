"""One judge for all: the same code judges the live run, its control replay and every trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stabexp.detectors.base import Detector
from stabexp.detectors.onset import find_onset
from stabexp.detectors.pattern import classify
from stabexp.detectors.robust import latest
from stabexp.detectors.table import DEFAULT_DETECTORS, DETECTORS
from stabexp.errors import ConfigError
from stabexp.plugins import component
from stabexp.records import Divergence, StepRecord

PATTERN_WINDOW = 64
"""Losses up to the detection whose shape is named."""


def build(
    names: Mapping[str, Mapping[str, Any] | None], *, base: Path | None = None
) -> tuple[Detector, ...]:
    """Return detectors by YAML name, in the order given, or the default set when none is named.

    The arguments of a detector may be None, for its defaults. `watch.py:Watch` names a class in a
    file below `base`.

    Raises:
        ConfigError: If a name is unknown or an argument is wrong.
    """
    detectors = []
    for name, args in (names or dict.fromkeys(DEFAULT_DETECTORS)).items():
        if args is not None and not isinstance(args, Mapping):
            raise ConfigError(
                f"detectors.{name}: expected keys and values, found {args!r}; "
                "leave it empty for the defaults"
            )
        detectors.append(component(DETECTORS, "detectors", name, args, parent=Detector, base=base))
    return tuple(detectors)


def history_needed(detectors: Sequence[Detector]) -> int:
    """Return how many of the latest records to keep so that `judge` sees all it asks for.

    Keep the run's first record in front of them as well (`del records[1:-history_needed(...)]`): it
    holds the untrained model's loss, by which a rise is measured when the loss is near zero.
    """
    return max([PATTERN_WINDOW, *(detector.history for detector in detectors)])


def judge(detectors: Sequence[Detector], records: Sequence[StepRecord]) -> Divergence | None:
    """Return the finding of the first detector that fires at the newest step, None if none does.

    Args:
        detectors: In order of precedence.
        records: As for `Detector.check`; a replay's must begin with the records before its fork, or
            a windowed detector would call every replay stable.
    """
    if not records:
        return None
    for detector in detectors:
        finding = detector.check(records)
        if finding is None:
            continue
        detected = records[-1].step
        onset = find_onset(records, detected) if finding.onset is None else finding.onset
        losses = [record.loss for record in latest(records, PATTERN_WINDOW)]
        return Divergence(
            detector=detector.name,
            detected=detected,
            onset=onset,
            pattern=finding.pattern or classify(losses),
            value=finding.value,
            limit=finding.limit,
            message=finding.message,
        )
    return None
