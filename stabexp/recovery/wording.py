"""What happened and what was done about it, as a user reads it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from stabexp.records import Recovery, RecoveryAction

SAID = {
    "plain_resume": "went on with nothing changed",
    "verdict_fix": "went on with the fix of the bisect",
    "smaller_micro_batch": "went on with smaller micro-batches, the same samples per update",
    "activation_checkpointing": "computed activations again instead of keeping them",
    "safe_operation": "kept the operation inside its domain",
    "keep_optimizer_state": "kept the optimizer's state from being lost",
    "replace_samples": "showed other samples in place of the bad ones",
    "hold_rate": "kept the rate from rising",
    "no_weight_decay": "left weight decay out",
    "wider_format": "trained in float32",
    "clip_gradients": "clipped the gradients",
    "lower_rate": "lowered the rate",
    "fresh_optimizer": "lowered the rate, clipped, and emptied the optimizer's state",
    "conservative": "cut the rate to a tenth, clipped, and ignored losses above all healthy ones",
    "restart": "started again from step 0 at a lower rate",
}


def what_was_changed(settings: Mapping[str, Any]) -> str:
    """Return "batch.size=16, batch.accumulate=2", long values cut."""
    shown = []
    for key, value in settings.items():
        text = f"{value:g}" if isinstance(value, float) else str(value)
        shown.append(f"{key}={text if len(text) <= 40 else text[:37] + '…'}")
    return ", ".join(shown) or "nothing"


def summary(recovery: Recovery) -> str:
    """Return the whole recovery in a few lines: what crashed, what was done, where it is now."""
    lines = [f"{recovery.run_id}: {recovery.what}"]
    if recovery.verdict:
        lines.append(f"  the bisect's verdict: {recovery.verdict}")
    for action in recovery.actions:
        lines += [f"  {line}" for line in _action(action)]
    times = f"{recovery.rollbacks} rollback{'s' if recovery.rollbacks != 1 else ''}"
    if recovery.status == "recovered":
        loss = f"{recovery.loss:.4g}" if math.isfinite(recovery.loss) else "unknown"
        lines.append(
            f"RECOVERED by {recovery.final_run}: {recovery.steps} steps, loss {loss} (median of "
            f"the last ten), {times}, {recovery.replayed_steps} steps replayed to choose"
        )
    elif recovery.status == "gave_up":
        lines.append(f"GAVE UP after {times}")
    if recovery.next_command:
        lines.append(f"next: {recovery.next_command}")
    return "\n".join(lines)


def _action(action: RecoveryAction) -> list[str]:
    told = {
        "running": "not finished",
        "trained_to_the_end": "trained to its end",
        "did_not_learn": "trained to its end and did not learn",
        "crashed_again": "crashed again",
    }[action.outcome]
    lines = [
        f"{action.number}. from step {action.from_step} {SAID[action.remedy]}: {told}"
        + (f" ({action.note})" if action.note else ""),
        f"   why: {action.why}",
    ]
    if action.settings:
        lines.append(f"   changed: {what_was_changed(action.settings)}")
    if action.window != (0, 0):
        lines.append(f"   danger window: steps {action.window[0]} to {action.window[1] - 1}")
    lines += [f"   checked: {check}" for check in action.checks]
    return lines
