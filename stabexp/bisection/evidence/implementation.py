"""Is the fault in the code: a broken rule of the training step, or an operation out of its domain?

No setting cures these, or one only hides them. A rule that is seen broken, and an operation that is
seen to make the first number that is none, are evidence of another kind than a cure; where a replay
can take exactly the fault away, it must cure as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median
from typing import Any

from stabexp.bisection.evidence.answer import Answer
from stabexp.bisection.facts import Facts
from stabexp.detectors.onset import ABNORMAL, loss_z
from stabexp.records import Cause, Change, Culprit, TrialRecord

RULE_CAUSES: dict[str, Cause] = {
    "state_changed_between_steps": "optimizer_state",
    "schedule_on_wrong_clock": "schedule",
    "positions_collide": "precision",
    "buffer_not_finite": "precision",
    "statistics_in_half": "precision",
    "parameter_not_initialised": "initialisation",
    "initial_loss": "initialisation",
    "input_range": "data",
    "repeated_batches": "data",
}
"""Rule → what its breach is called; all others are faults of the implementation."""

SILENT_RULES = frozenset(
    {
        "double_softmax",
        "loss_shapes_broadcast",
        "parameter_never_moves",
        "positions_collide",
        "buffer_not_finite",
        "statistics_in_half",
        "schedule_on_wrong_clock",
        "repeated_batches",
        "integer_wraps",
        "micro_batches_weighted_wrongly",
        "router_collapse",
        "loss_detached",
        "initial_loss",
        "almost_nothing_trains",
    }
)
"""Breaches that spoil what is learned but do not by themselves throw a training over."""

TELLING = frozenset({"adapter_scale"})
"""Rules that explain a crash though they are only suspicious and no replay can prove them."""

OVERFLOWS = frozenset({"overflow", "fp16_overflow", "scaler"})
"""Reasons that can be the end of something else: numbers that had grown, or a narrow format."""

MODEL_REASONS = frozenset({"masked_row"})
"""Reasons that belong to a model even where no module of it is on the stack."""

LIMITS = frozenset({"exp_overflow", "overflow"})
"""Reasons that say themselves that an operation was used beyond what its data type can take."""
CALM_STEPS, CALM_WINDOW = 5, 64
"""Steps before a crash that must look normal, and those they are compared with."""
GROWN = 4.0
"""Gradient norm over its median above which it has grown."""
FORMULA_LINES = 3
"""Lines within which two operations belong to one formula."""
FEW = 3
"""Samples of a batch up to which they can be told from the batch."""


def rule_test(item: Mapping[str, Any]) -> Change | None:
    """Return the one change by which a replay can prove a broken rule, None when there is none."""
    cure = item.get("cure")
    return Change(variable=cure["variable"], dose=cure["dose"]) if cure else None


def suspects(facts: Facts, *, silent: bool) -> tuple[Mapping[str, Any], ...]:
    """Return the broken rules that can explain the incident, strongest first.

    A rule that is only suspicious counts where a replay can prove it.
    """
    return tuple(
        item
        for item in facts.broken_rules
        if (silent or item["rule"] not in SILENT_RULES)
        and (
            silent
            or item["strength"] == "certain"
            or bool(item.get("cure"))
            or item["rule"] in TELLING
        )
    )


def rules(facts: Facts, *, silent: bool = False) -> Answer:
    """Does the training step break one of its own rules, and does keeping it cure?"""
    controls = tuple(r.spec.key for r in facts.controls if "rules" in r.spec.instruments)
    found = suspects(facts, silent=silent)
    tried = []
    for item in found:
        test = facts.tests.get(f"rule {item['rule']}")
        if test is not None and test.outcome != "cured":
            tried.append(f"{item['rule']} at {item['place']}: keeping it {test.outcome}")
            continue
        if test is None and rule_test(item) is not None and not silent:
            continue  # it could not be tried
        cause = RULE_CAUSES.get(str(item["rule"]), "implementation")
        proof = "; with that rule kept the run trains through" if test else ""
        return Answer(
            yes=True,
            detail=f"{item['rule'].replace('_', ' ')} at {item['place']}: {item['detail']}{proof}",
            trials=controls + ((test.spec.key,) if test else ()),
            cause=cause,
            culprit=Culprit(
                kind=str(item["rule"]),
                place=str(item["place"]),
                detail=str(item["detail"]),
                remedy=str(item["remedy"]),
                samples=tuple(item.get("samples") or ()),
            ),
            cure=test.spec.key if test else "",
        )
    seen = [str(item["rule"]) for item in facts.broken_rules]
    left_out = next((why for r in facts.controls if (why := _left_out(r))), "")
    if left_out and not seen:
        return Answer(
            yes=False,
            detail=f"not examined: the training has {left_out}",
            trials=controls,
            tried=False,
        )
    detail = "; ".join(tried) or (
        f"seen, but no explanation of the crash: {', '.join(seen)}" if seen else "none is broken"
    )
    return Answer(yes=False, detail=detail, trials=controls, tried=bool(controls))


def _left_out(record: TrialRecord) -> str:
    """Return why no rule was watched in a replay, empty when they were."""
    return str(record.findings.get("rules_failures", {}).get("*", ""))


def operation_suspected(facts: Facts) -> bool:
    """Return whether replays can tell if the first number that is none was made by a fault."""
    found = facts.non_finite
    if found is None or found["phase"] == "parameter":
        return False
    return operation_test(found, facts) is not None or bool(few_samples(found, facts))


def _out_of_range(found: Mapping[str, Any], facts: Facts) -> bool:
    """Return whether numbers left float32's range though nothing in the training had grown."""
    full = str(found.get("dtype")) in {"float32", "float64"}
    calm = int(found["step"]) == 0 or calm_before(facts, int(found["step"]))
    return found["reason"] == "overflow" and full and calm


def few_samples(found: Mapping[str, Any], facts: Facts) -> tuple[int, ...]:
    """Return the samples whose rows alone the first bad number was in; empty when it was in all."""
    samples = tuple(found.get("sample_ids") or ())
    return samples if 0 < len(samples) <= min(FEW, facts.setup.batch_size - 1) else ()


def operation_test(found: Mapping[str, Any], facts: Facts) -> Change | None:
    """Return the change that takes just this fault away; None where it is no operation's."""
    if found["phase"] == "input":
        return None
    if found["reason"] in OVERFLOWS and not _out_of_range(found, facts):
        return None
    if found["phase"] == "optimizer" and found["reason"] != "zero_times_inf":
        return Change(variable="adam_eps", dose=1e-4)
    place = f"@{found['source']}" if found.get("source") else ""
    return Change(variable="safe_operation", dose=f"{found['operation']}{place}")


def calm_before(facts: Facts, step: int) -> bool:
    """Return whether loss and gradient were as ever up to a step: nothing had grown before it."""
    records = [record for record in facts.records if record.step < step]
    norms = [record.grad_norm for record in records[-CALM_WINDOW:]]
    if len(norms) < CALM_STEPS or not all(math.isfinite(norm) for norm in norms):
        return False
    last = range(len(records) - CALM_STEPS, len(records))
    calm = all(loss_z(records, index) <= ABNORMAL for index in last)
    return calm and max(norms[-CALM_STEPS:]) <= GROWN * median(norms)


def next_operation(test: TrialRecord, change: Change, facts: Facts) -> Change | None:
    """Return the change that keeps one more operation safe, None when there is none to add.

    With the first one kept inside its domain, another one of the same formula may be the first to
    leave its own.
    """
    found = test.findings.get("locate")
    if test.outcome not in {"diverged", "delayed"} or not found or found.get("harmless"):
        return None
    made = found["phase"] not in {"input", "parameter"}
    more = operation_test(found, facts) if made else None
    if more is None and _same_formula(str(change.dose), str(found.get("source"))):
        # Large but finite there, and too large once they are added up.
        more = Change(variable="safe_operation", dose=f"{found['operation']}@{found['source']}")
    if more is None or more.variable != change.variable or change.variable != "safe_operation":
        return None
    known = str(change.dose).split(",")
    if str(more.dose) in known:
        return None
    return Change(variable=change.variable, dose=",".join([*known, str(more.dose)]))


def _same_formula(dose: str, source: str) -> bool:
    """Return whether a line lies within a few lines of the last operation that is kept safe."""
    file, _, line = source.rpartition(":")
    known, _, last = dose.rpartition("@")[2].rpartition(":")
    both = line.isdigit() and last.isdigit()
    return both and file == known and abs(int(line) - int(last)) <= FORMULA_LINES


def operation(facts: Facts) -> Answer:  # noqa: PLR0911
    """Did one operation, fed with ordinary numbers, make the first NaN or Inf?"""
    found = facts.non_finite
    if found is None:
        watched = any("locate" in r.spec.instruments for r in facts.controls)
        seen = "every operation of the replay gave finite numbers"
        unseen = "no replay whose every operation was watched took the run's course"
        return Answer(yes=False, detail=seen if watched else unseen, tried=watched)
    where = _where(found)
    culprit = Culprit(
        kind=str(found["reason"]),
        place=where,
        detail=str(found["explanation"]),
        remedy=str(found["remedy"]),
        code=str(found.get("code") or ""),
        samples=few_samples(found, facts),
    )
    controls = tuple(r.spec.key for r in facts.controls if "locate" in r.spec.instruments)
    first = f"step {found['step']}: {found['explanation']} ({where})"
    if found["phase"] == "input":
        return _bad_input(facts, culprit, first, controls)
    if found["phase"] == "parameter":
        return Answer(
            yes=True, detail=first, trials=controls, cause="initialisation", culprit=culprit
        )
    without = facts.tests.get("samples")
    if without is not None and without.outcome == "cured" and found["reason"] in OVERFLOWS:
        shown = ", ".join(str(i) for i in culprit.samples)
        return Answer(
            yes=True,
            detail=f"{first}; only in the rows of the samples {shown}, and without these the run "
            "trains through as it is",
            trials=(*controls, without.spec.key),
            cause="data",
            culprit=culprit,
            cure=without.spec.key,
        )
    if operation_test(found, facts) is None:
        return Answer(
            yes=False,
            detail=f"{first}; numbers that had grown too large are the end of something else",
            trials=controls,
        )
    test = facts.tests.get("operation")
    if test is None:
        return Answer(yes=None, detail=f"{first}; no replay with it kept safe was made")
    keys = (*controls, test.spec.key)
    if test.outcome != "cured":
        # Kept inside its domain it may still compute something else than was meant. But where all
        # was calm until then, and no bad number comes back, it is what the crash began with.
        bad = test.divergence is not None and test.divergence.detector == "non_finite"
        ended = test.outcome != "inconclusive" and not bad
        if ended and found["reason"] in LIMITS and calm_before(facts, int(found["step"])):
            return Answer(
                yes=True,
                detail=f"{first}; until then loss and gradient were as ever, and with it kept "
                "inside its domain no bad number comes any more",
                trials=keys,
                cause=_cause_of(found),
                culprit=culprit,
            )
        return Answer(
            yes=False,
            detail=f"{first}; but with it kept inside its domain: {test.outcome}, {test.note}",
            trials=keys,
        )
    return Answer(
        yes=True,
        detail=f"{first}; with only that operation kept inside its domain the run trains through",
        trials=keys,
        cause=_cause_of(found),
        culprit=culprit,
        cure=test.spec.key,
    )


def _bad_input(facts: Facts, culprit: Culprit, first: str, controls: tuple[str, ...]) -> Answer:
    """Answer for a value that was no number before the model saw it."""
    without = facts.tests.get("samples")
    if without is None:
        return Answer(yes=True, detail=first, trials=controls, cause="data", culprit=culprit)
    keys = (*controls, without.spec.key)
    if without.outcome != "cured":
        detail = f"{first}; but without these samples: {without.outcome}, {without.note}"
        return Answer(yes=False, detail=detail, trials=keys)
    return Answer(
        yes=True,
        detail=f"{first}; without the samples {', '.join(map(str, culprit.samples))} the run "
        "trains through",
        trials=keys,
        cause="data",
        culprit=culprit,
        cure=without.spec.key,
    )


def _cause_of(found: Mapping[str, Any]) -> Cause:
    if found["phase"] == "optimizer" and str(found.get("dtype")) in {"float16", "bfloat16"}:
        return "precision"
    outside = not found.get("module") and found["phase"] != "optimizer"
    return "loss_function" if outside and found["reason"] not in MODEL_REASONS else "implementation"


def _where(found: Mapping[str, Any]) -> str:
    """Return "train.py:31, in head, forward" for a finding of the locator."""
    module = f", in {found['module']}" if found.get("module") else ""
    return f"{found['operation']} at {found.get('source') or 'an unknown line'}{module}, " + str(
        found["phase"]
    )
