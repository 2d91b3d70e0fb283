"""Whether a run that goes on after a crash really came back: it ended, and it has learned again.

A network can die in its crash, or under a rate cut by ten, and train quietly to its end at the
level of guessing. So the end is compared with the lowest level the crashed run had reached.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from stabexp.detectors.robust import finite, noise
from stabexp.records import Divergence, StepRecord

BLOCK = 10
"""Steps whose median loss is one level."""
SHARE = 0.1
"""Share of the progress made before the crash by which the end may lie above the floor."""
SIGMAS = 3.0


def level(records: Sequence[StepRecord]) -> float:
    """Return the median of the last ten losses, Inf when most are not finite, NaN for none."""
    losses = [r.loss if math.isfinite(r.loss) else math.inf for r in records[-BLOCK:]]
    return median(losses) if losses else math.nan


def floor_before(records: Sequence[StepRecord], crash: Divergence) -> float:
    """Return the lowest level before the onset, NaN when too little was healthy."""
    losses = finite(r.loss for r in records if r.step < crash.onset)
    levels = [median(losses[end - BLOCK : end]) for end in range(len(losses), BLOCK - 1, -BLOCK)]
    return min(levels, default=math.nan)


def shortfall(ended: Sequence[StepRecord], crashed: Sequence[StepRecord], crash: Divergence) -> str:
    """Return in a sentence how the end lies above what was reached before; empty when it does not.

    Args:
        ended: Records of the run that trained to its end.
        crashed: Those of the run whose crash it answers.
        crash: That crash.
    """
    floor, end = floor_before(crashed, crash), level(ended)
    if not math.isfinite(floor):
        return ""
    healthy = finite(r.loss for r in crashed if r.step < crash.onset)
    progress = max(healthy[0] - floor, 0.0)
    # The median of ten draws scatters by 1.25 / sqrt(10) of one of them.
    allowed = max(SHARE * progress, SIGMAS * 0.4 * noise(healthy))
    if end <= floor + allowed:
        return ""
    return f"it ended at a loss of {end:.4g}, above the {floor:.4g} that had been reached"


def made_again(recorded: Sequence[StepRecord], again: Sequence[StepRecord]) -> str:
    """Return in a sentence whether steps that were made twice came out the same, bit for bit."""
    before = {record.step: record for record in recorded}
    both = [(before[r.step], r) for r in again if r.step in before and r is not before[r.step]]
    twice = [(old, new) for old, new in both if old.time != new.time]
    for old, new in twice:
        if old.digest != new.digest or str(old.loss) != str(new.loss):
            return (
                f"step {old.step}, made again, differs from its record: the training is not "
                "deterministic, or that step was disturbed"
            )
    if not twice:
        return "no recorded step had to be made again"
    first, last = twice[0][0].step, twice[-1][0].step
    return f"steps {first} to {last} made again: equal to the records bit for bit"
