"""The words a verdict is told in, the same in the page, the note and the terminal.

Text that users wrote passes through `clean`, so that no control character reaches a terminal, a
Markdown table or an HTML parser. Figures are exact to four digits, and everything has its unit.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from stabexp.records import VARIABLES, Outcome, TrialRecord, Verdict

OUTCOMES: Mapping[Outcome, str] = {
    "cured": "reached its horizon and still learned",
    "stalled": "reached its horizon without learning",
    "delayed": "diverged clearly later than the control",
    "diverged": "diverged at about the same distance as the control",
    "inconclusive": "could not be judged",
}
"""What each outcome means, in the order a legend shows them."""

LONGEST_DOSE = 40
"""Characters of a dose that are shown."""

_PRECISIONS = ("fp16_unscaled", "pure_fp16", "fp16", "pure_bf16", "bf16", "fp32", "fp64")


def clean(text: object) -> str:
    """Return text without control, surrogate and direction-override characters.

    Line breaks and tabs stay; every other such character becomes U+FFFD.
    """
    return "".join("\N{REPLACEMENT CHARACTER}" if _unsafe(char) else char for char in str(text))


def _unsafe(char: str) -> bool:
    if char in "\n\t":
        return False
    turns = "\u202a" <= char <= "\u202e" or "\u2066" <= char <= "\u2069"
    return turns or unicodedata.category(char) in {"Cc", "Cs"}


def one_line(text: object) -> str:
    """Return cleaned text with every run of white space as one space."""
    return " ".join(clean(text).split())


def figure(value: float) -> str:
    """Return a number for people: at most four significant digits, "NaN", "Inf" or "-Inf"."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    if float(value).is_integer() and abs(value) < 1e7:
        return f"{int(value):,}"
    mantissa, _, exponent = f"{value:.4g}".partition("e")
    if exponent:
        return f"{mantissa}e{int(exponent)}"
    return mantissa


def count(number: int, noun: str) -> str:
    """Return "1 step", "2,000 steps"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(seconds: float) -> str:
    """Return "0.8 s", "41 s", "3 min 20 s" or "2 h 05 min"."""
    if not math.isfinite(seconds):
        return "an unknown time"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def dose(variable: str | None, value: float | int | str | None) -> str:
    """Return how strong a change is, with its unit: "×0.5", "25 steps", "0.37", "fp32"."""
    if value is None:
        return "none"
    if isinstance(value, str):
        text = one_line(value)  # hundreds of sample ids would push everything else aside
        return text if len(text) <= LONGEST_DOSE else f"{text[: LONGEST_DOSE - 1]}…"
    if variable == "warmup":
        return count(int(value), "step")
    before = {"learning_rate": "×", "batch_size": "×", "shuffle": "order "}
    return before.get(variable or "", "") + figure(value)


def strength(variable: str, value: float | int | str) -> tuple[int, float, str]:
    """Return a key that sorts the doses of one variable from mild to strong."""
    if isinstance(value, str):
        known = value in _PRECISIONS
        return (1, _PRECISIONS.index(value) if known else len(_PRECISIONS), value)
    # A smaller rate and a tighter clip are the stronger change; longer and larger are elsewhere.
    return (0, -value if variable in {"learning_rate", "clip_norm"} else value, "")


def change(record: TrialRecord) -> str:
    """Return what a trial changed: "learning_rate ×0.5", "nothing", "the fix"."""
    parts = [
        f"{one_line(item.variable)} {dose(item.variable, item.dose)}"
        for item in record.spec.changes
    ]
    if record.spec.role == "manual":
        parts += [f"{one_line(key)} {one_line(value)}" for key, value in record.spec.patch.items()]
    if parts:
        return " + ".join(parts)
    return {"proof": "the fix", "reversal": "original value back"}.get(record.spec.role, "nothing")


def label(record: TrialRecord) -> str:
    """Return the two-digit number people call a trial by, or the start of its key."""
    return f"{record.number:02d}" if record.number >= 0 else record.spec.key[:6]


def losses(record: TrialRecord) -> str:
    """Return the losses at both ends of a trial, "–" when nothing was replayed."""
    if record.steps <= 0 or record.spec.role == "scan":
        return "–"
    return f"{figure(record.start_loss)} → {figure(record.end_loss)}"


def finding(record: TrialRecord) -> str:
    """Return in one or two sentences what a trial showed, with the figures."""
    spec, found = record.spec, record.divergence
    if record.outcome == "inconclusive":
        text = f"Not judged: {one_line(record.note).rstrip('.') or 'no reason was recorded'}."
    elif record.outcome == "cured":
        text = f"Stable to step {record.last_step:,} and still learning: loss {losses(record)}."
    elif record.outcome == "stalled":
        text = f"Stable to step {record.last_step:,} but not learning: loss {losses(record)}."
    else:
        at = found.onset if found else record.last_step
        text = f"Diverged from step {at:,}, {count(max(0, at - spec.from_step), 'step')} on."
    if spec.role == "control" and record.outcome != "inconclusive":
        if record.mismatch is None:
            text += " Bit for bit equal to the run."
        else:
            field = f" ({one_line(record.mismatch_field)})" if record.mismatch_field else ""
            text += f" Differs from the run from step {record.mismatch:,}{field}."
    if record.note and record.outcome != "inconclusive":
        text += f" {one_line(record.note)}"
    return text


def outcome(record: TrialRecord) -> str:
    """Return an outcome in a word or two; a scan trains nothing, so it has none."""
    scanned = record.spec.role == "scan" and record.steps > 0
    return "looked at" if scanned else record.outcome


def gist(record: TrialRecord) -> str:
    """Return in a few words what a trial showed."""
    found, at = record.divergence, record.last_step
    if record.spec.role == "scan" and record.steps > 0:
        return f"{count(record.steps, 'sample')}, without an update"
    if record.outcome == "inconclusive":
        return one_line(record.note) or "no reason was recorded"
    if record.outcome in {"cured", "stalled"}:
        text = f"to step {at:,}, loss {losses(record)}"
        return text if record.mismatch is None else f"{text}, {_differs(record)}"
    text = f"from step {found.onset if found else at:,}"
    if record.spec.role != "control":
        return text
    return f"{text}, {'bit for bit' if record.mismatch is None else _differs(record)}"


def _differs(record: TrialRecord) -> str:
    field = f" in {one_line(record.mismatch_field)}" if record.mismatch_field else ""
    return f"differs from the run from step {record.mismatch:,}{field}"


def confidence(value: float) -> str:
    """Return a confidence as a number and what the number means."""
    if not 0 <= value <= 1:
        return "not stated"
    if value == 0:
        return "0: no cause is named"
    share = round(100 * value)
    return f"{value:.2f} (of verdicts with this evidence, about {share} in 100 are right)"


def confidence_word(value: float) -> str:
    """Return a confidence as one word."""
    steps = ((0.95, "very high"), (0.85, "high"), (0.7, "fair"), (0.5, "low"), (1e-9, "very low"))
    if value == 0:
        return "no"
    return next((word for least, word in steps if value >= least), "unknown")


def cost(verdict: Verdict) -> str:
    """Return what the verdict took: "8 trials, 412 replayed steps (3.2 × …), 41 s"."""
    text = f"{count(verdict.trials, 'trial')}, {count(verdict.replayed_steps, 'replayed step')}"
    if verdict.crash_steps > 0 and verdict.divergence.detector != "none":
        times = verdict.replayed_steps / verdict.crash_steps
        shown = f"{times:,.0f}" if times >= 10 else f"{times:.1f}"
        text += f" ({shown} × the {count(verdict.crash_steps, 'step')} to the divergence)"
    return f"{text}, {duration(verdict.seconds)}"


def incident(verdict: Verdict) -> str:
    """Return what happened to the run, in one sentence."""
    found = verdict.divergence
    if found.detector == "none":
        return f"The run did not diverge in its {count(found.detected + 1, 'step')}."
    return (
        f"The run diverged from step {found.onset:,} (detected at {found.detected:,} by "
        f"{one_line(found.detector)}). Last good checkpoint: step {verdict.good_step:,}."
    )


def proof(verdict: Verdict) -> str:
    """Return what can be done about it, and whether that was tried."""
    if not verdict.fix:
        if verdict.culprit is None or not verdict.culprit.remedy:
            return "There is no fix to offer."
        remedy = one_line(verdict.culprit.remedy).rstrip(".")
        shown = " With only that taken away the run trained through." if verdict.fix_proved else ""
        return f"To mend: {remedy}.{shown}"
    if verdict.fix_proved:
        return "Proved: the run with the fix passed the horizon, went on and learned."
    return "Not proved: the run with the fix has not yet been seen to pass the horizon."


def culprit(verdict: Verdict) -> list[tuple[str, str]]:
    """Return (heading, text) pairs about what exactly is at fault; empty where a setting is."""
    found = verdict.culprit
    if found is None:
        return []
    pairs = [("Where", one_line(found.place)), ("What", one_line(found.detail))]
    if found.code.strip():
        pairs.insert(1, ("Line", one_line(found.code)))
    if found.samples:
        pairs.append(("Samples", ", ".join(str(sample) for sample in found.samples[:40])))
    return pairs


def possible(verdict: Verdict) -> list[tuple[str, str]]:
    """Return (cause, what speaks for it) of what is still possible, most plausible first."""
    return [(one_line(item.cause), one_line(item.why)) for item in verdict.hypotheses]


def no_return(verdict: Verdict) -> str:
    """Return where the point of no return lies; empty when the last good checkpoint was good."""
    step = verdict.point_of_no_return
    if step is None:
        return ""
    return (
        f"Point of no return: from the checkpoint of step {step:,} the fix still works, from later "
        "ones it does not."
    )


def ordered(trials: Iterable[TrialRecord]) -> list[TrialRecord]:
    """Return the trials in the order in which they finished; unnumbered ones come last."""
    return sorted(trials, key=lambda record: (record.number < 0, record.number))


def ladders(trials: Iterable[TrialRecord]) -> dict[str, list[TrialRecord]]:
    """Return, per variable, its dose trials from mild to strong; variables in their usual order."""
    tried: dict[str, list[TrialRecord]] = {}
    for record in ordered(trials):
        if record.spec.role == "dose" and len(record.spec.changes) == 1:
            tried.setdefault(record.spec.changes[0].variable, []).append(record)
    known = [variable for variable in VARIABLES if variable in tried]
    return {
        variable: sorted(
            tried[variable], key=lambda record: strength(variable, record.spec.changes[0].dose)
        )
        for variable in [*known, *sorted(tried.keys() - known)]
    }


def commands(verdict: Verdict, extra: Sequence[tuple[str, str]] = ()) -> list[tuple[str, str]]:
    """Return (what it does, command) pairs that repeat the work."""
    return [("Repeat this bisect", f"stabexp bisect {verdict.run_id}"), *extra]
