"""What a detector promises: it is pure, looks no further back than it says, and stays calm."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stabexp import detectors as detection
from stabexp.detectors import Detector
from stabexp.records import StepRecord
from stabexp.testing.promises import check_settings


def check_detector(
    name: str, args: Mapping[str, Any] | None = None, *, base: Path | None = None
) -> None:
    """Check what every detector promises.

    Its settings are documented. The same records give the same answer, every time and in every
    process: a trial is judged like the run. It looks at the newest `history` records and the run's
    first, no more. It stays silent on a run that trains. What it finds has a value, a limit and a
    sentence.

    Args:
        name: As in the experiment file: `loss_spike`, `watch.py:Watch`, `package.module:Watch`.
        args: Its arguments, also as in the file.
        base: Folder that file names start from; None: the current one.

    Raises:
        AssertionError: If a promise is broken.
        ConfigError: If it cannot be loaded, or an argument is wrong.
    """
    given = dict(args or {})

    def make(arguments: Mapping[str, Any]) -> Detector:
        (made,) = detection.build({name: arguments}, base=base)
        return made

    check_settings(make, name, given)
    for words, records in _runs().items():
        detector, other = make(given), make(given)
        assert detector.history >= 1, f"{name}: history is {detector.history}; at least 1"
        for end in range(1, len(records) + 1):
            seen = records[:end]
            found = detector.check(seen)
            assert found == detector.check(seen), (
                f"{name}: answered differently when asked again at step {end - 1} ({words})"
            )
            newest = seen[-detector.history :]
            recent = newest if newest[0].step == 0 else [seen[0], *newest]
            assert found == other.check(recent), (
                f"{name}: looks further back than its history of {detector.history} (step "
                f"{end - 1}, {words}), or remembers what it was asked before"
            )
            if found is None:
                continue
            assert words != _HEALTHY, f"{name}: fired on a healthy run: {found.message}"
            assert found.message.strip(), f"{name}: found something without a message"


_HEALTHY = "a run that learns"


def _runs() -> dict[str, Sequence[StepRecord]]:
    noise = random.Random(0)
    calm = [0.2 + 2 * math.exp(-step / 40) + noise.gauss(0, 0.02) for step in range(240)]
    return {
        _HEALTHY: _records(calm),
        "one hard batch": _records([*calm[:120], 3.0, *calm[121:]]),
        "a jump that stays": _records([*calm[:150], *[9.0 + noise.random() for _ in range(60)]]),
        "exponential growth": _records([*calm[:120], *[0.3 * 1.15**k for k in range(60)]]),
        "a loss of NaN": _records([*calm[:100], math.nan, math.nan, math.nan]),
        "two steps": _records([2.0, math.inf]),
    }


def _records(losses: Sequence[float]) -> list[StepRecord]:
    return [
        StepRecord(
            step=step,
            time=float(step),
            loss=loss,
            lr=0.1,
            grad_norm=loss if math.isfinite(loss) else math.nan,
            batch_size=16,
            param_norm=1.0,
            nonfinite_params=0 if math.isfinite(loss) else 1,
        )
        for step, loss in enumerate(losses)
    ]
