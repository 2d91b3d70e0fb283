"""The diagnostic mode's findings, as text for a terminal."""

from __future__ import annotations

from stabexp.recovery.layers import LayerDiagnosis, came_back, stayed_away


def layers_text(found: LayerDiagnosis) -> str:
    """Return what the restored model says of each batch, and which layers bring the crash back."""
    lines = [
        f"{found.run_id}: from the checkpoint of step {found.from_step}, crash at {found.detected}",
        "the restored model, frozen, on the batches up to the crash:",
        "    step   recorded   restored model",
    ]
    lines += [f"  {b.step:6d}  {b.recorded:9.4g}  {b.restored:9.4g}" for b in found.batches]
    step = found.batch_at_fault
    lines.append(
        f"  the batch of step {step} is far worse than the others: look at its samples"
        if step is not None
        else "  no batch stands out: the model was ruined, not the data"
    )
    for name, (before, after) in found.held_out.items():
        lines.append(f"  {name}: {before:.4g} before the checkpoint, {after:.4g} at the crash")
    lines += ["layers:", "    trained alone   all but it trained"]
    for name, alone in found.alone.items():
        without = found.without[name]
        one = "crash comes back" if came_back(alone) else "no crash"
        other = "no crash" if stayed_away(without) else "crash comes back"
        lines.append(f"  {name:24s}  alone: {one:18s} without it: {other}")
    if found.from_the_top:
        lines.append("  unfrozen from the output down: " + ", ".join(found.from_the_top))
    fault = ", ".join(found.at_fault)
    lines.append(f"at fault: {fault}" if fault else "no single layer is at fault")
    return "\n".join(lines)
