"""A jump of the rate, a lost state, a wide initialisation, too much weight decay, overfitting."""

from __future__ import annotations

import math
from statistics import median

from stabexp.bisection.evidence.answer import Answer
from stabexp.bisection.facts import Facts, healthy_norms
from stabexp.records import StepRecord, TrialRecord

RISEN = 1.5
"""Rate over the highest one of the calm time before, above which a schedule can be the cause."""
JUST_BEFORE = 5
"""Steps before the onset that do not count as calm: an update shows in the next loss."""
JUMPED = 3.0
"""Update ratio over its usual value above which something happened to the optimizer."""
WIDE_FACTOR, WIDE_MORE = 2.5, 1.0
"""First loss above 2.5 ln C + 1: far worse than guessing, so the initial outputs are wild."""
SHRUNK = 0.6
"""Share of their first norm below which weight decay has eaten the parameters."""
STRONG_DECAY = 0.1
"""Rate times weight decay above which a parameter loses a tenth in every update."""


def _test(facts: Facts, name: str, *, seen: str, kept: str) -> Answer:
    """Answer from one replay with the suspected mechanism switched off."""
    test: TrialRecord | None = facts.tests.get(name)
    if test is None:
        return Answer(yes=False, detail=f"{seen}, but no replay {kept} was made", tried=False)
    keys = (test.spec.key,)
    if test.outcome != "cured":
        return Answer(yes=False, detail=f"{seen}, but {kept}: {test.outcome}", trials=keys)
    return Answer(
        yes=True, detail=f"{seen}; {kept} the run trains through", trials=keys, cure=test.spec.key
    )


def rate_rose(facts: Facts) -> tuple[float, float] | None:
    """Return the rate of the calm time and the one at the onset, when it rose after a calm time.

    A ramp from step 0 is no rise: what it ends at is the run's learning rate.
    """
    rates = [(r.step, r.lr) for r in facts.records if r.lr == r.lr]
    onset = facts.divergence.onset
    until = facts.divergence.detected
    calm = [lr for step, lr in rates if step < onset - JUST_BEFORE]
    event = [lr for step, lr in rates if onset - JUST_BEFORE <= step <= until]
    if len(calm) < 2 * JUST_BEFORE or not event:
        return None
    ramp = facts.setup.warmup_steps
    while ramp + 1 < len(calm) and calm[ramp + 1] > calm[ramp] * (1 + 1e-9):
        ramp += 1  # a loop's own ramp, which the configuration does not know
    held = calm[ramp:]
    if len(held) < 2 * JUST_BEFORE:
        return None
    usual, now = median(held[-4 * JUST_BEFORE :]), max(event)
    return (usual, now) if now > RISEN * usual > 0 else None


def schedule(facts: Facts) -> Answer:
    """Did the schedule raise the rate, and does the old rate train through?"""
    rose = rate_rose(facts)
    if rose is None:
        return Answer(yes=False, detail="the rate did not rise before the onset")
    seen = f"the rate rose from {rose[0]:.3g} to {rose[1]:.3g} around the onset"
    return _test(facts, "schedule", seen=seen, kept="with the rate held where it was")


def update_jumped(facts: Facts) -> float | None:
    """Return by how much the update ratio jumped while the gradient did not, None for no jump."""
    records, onset = facts.records, facts.divergence.onset
    before = [r.update_ratio for r in records if r.step < onset - 2]
    before = [ratio for ratio in before[-32:] if math.isfinite(ratio) and ratio > 0]
    event = [r for r in records if onset - 2 <= r.step <= onset + 1]
    norms = healthy_norms(records, onset - 2, window=32)
    if len(before) < 8 or len(norms) < 8 or not event:
        return None
    jump = max(_jump(r, before, norms) for r in event)
    return jump if jump > JUMPED else None


def _jump(record: StepRecord, ratios: list[float], norms: list[float]) -> float:
    ratio = record.update_ratio / median(ratios)
    grown = max(1.0, record.grad_norm / median(norms))
    return ratio / grown if math.isfinite(ratio) and math.isfinite(grown) else 0.0


def optimizer_state(facts: Facts) -> Answer:
    """Was the optimizer's state lost or damaged, and does keeping it cure?"""
    jump = update_jumped(facts)
    if jump is None:
        return Answer(yes=False, detail="updates did not jump while gradients stayed as they were")
    seen = f"updates became {jump:.3g} times as large at the onset while gradients did not"
    return _test(facts, "optimizer_state", seen=seen, kept="with the optimizer's state kept")


def first_loss_wild(facts: Facts) -> bool:
    """Return whether the first loss is far above what guessing scores."""
    guess, first = facts.setup.trivial_loss, _first_loss(facts)
    if any(item["rule"] == "initial_loss" for item in facts.broken_rules):
        return True  # seen by what watched a loop of the user's own
    return guess is not None and first is not None and not first <= WIDE_FACTOR * guess + WIDE_MORE


def _first_loss(facts: Facts) -> float | None:
    return next((r.loss for r in facts.records if r.step == 0), None)


def initialisation(facts: Facts) -> Answer:
    """Does the run begin far worse than guessing, and does a smaller initialisation cure?"""
    if not first_loss_wild(facts):
        return Answer(yes=False, detail="the first loss is not far above that of guessing")
    guess = facts.setup.trivial_loss
    known = "" if guess is None else f" where guessing scores {guess:.4g}"
    seen = f"the first loss is {_first_loss(facts):.4g}{known}"
    return _test(facts, "initialisation", seen=seen, kept="with smaller initial weights")


def decay_suspected(facts: Facts) -> bool:
    """Return whether weight decay has eaten the weights, or is strong enough to overshoot."""
    decay = facts.setup.weight_decay
    norms = [r.param_norm for r in facts.records if math.isfinite(r.param_norm)]
    rates = [r.lr for r in facts.records if math.isfinite(r.lr)]
    if not decay or len(norms) < 2:
        return False
    return min(norms) < SHRUNK * norms[0] or decay * max(rates, default=0.0) > STRONG_DECAY


def weight_decay(facts: Facts) -> Answer:
    """Does weight decay eat the weights, and does the run train through without?"""
    decay = facts.setup.weight_decay
    if not decay_suspected(facts):
        return Answer(yes=False, detail=f"a weight decay of {decay:g} left the weights their size")
    norms = [r.param_norm for r in facts.records if math.isfinite(r.param_norm)]
    seen = f"with a weight decay of {decay:g} the parameters' norm went from {norms[0]:.4g} to "
    seen += f"{min(norms):.4g}"
    return _test(facts, "weight_decay", seen=seen, kept="without weight decay")


def overfitting(facts: Facts) -> Answer:
    """Is the training loss far below that of held-out data, which rises?"""
    name = held_out(facts)
    if name is None:
        return Answer(yes=False, detail="no loss on held-out data was logged")
    values = [r.metrics[name] for r in facts.records if name in r.metrics]
    values = [value for value in values if math.isfinite(value)]
    train = [r.loss for r in facts.records if math.isfinite(r.loss)]
    if len(values) < 3 or not train:
        return Answer(yes=False, detail=f"too few values of {name}")
    best, last, fitted = min(values), values[-1], median(train[-10:])
    detail = f"{name} fell to {best:.4g} and is {last:.4g}; the training loss is {fitted:.4g}"
    return Answer(yes=last > 1.2 * best and fitted < 0.5 * last, detail=detail)


def held_out(facts: Facts) -> str | None:
    """Return the name of a logged loss on held-out data, None when there is none."""
    for record in facts.records:
        for name in record.metrics:
            if any(word in name.lower() for word in ("val", "eval", "test", "held")):
                return name
    return None
