"""The verdict in one sentence."""

from __future__ import annotations

from stabexp.bisection.decision_tree import Walk
from stabexp.bisection.evidence.step_size import unmoved
from stabexp.bisection.facts import NOTHING, Facts
from stabexp.records import BLAMELESS, VARIABLES, Cause, Evidence


def summary(facts: Facts, cause: Cause, path: tuple[Evidence, ...], walked: Walk) -> str:
    """Return the verdict in one sentence."""
    last = next((step for step in reversed(path) if step.decisive), path[-1])
    if cause == "inconclusive" and facts.divergence.detector == NOTHING:
        return "Nothing was found that is wrong with the training step of this run."
    if cause in BLAMELESS:
        if cause == "inconclusive" and facts.spent:
            return "The budget ran out before a cause could be proved."
        return _blameless(cause, last)
    mechanism = walked.answer is not None and walked.answer.cure
    if cause in VARIABLES and facts.ladder(cause).cure is not None and not mechanism:
        return _variable(facts, cause, path)
    return _mechanism(cause, walked)


def _blameless(cause: Cause, last: Evidence) -> str:
    detail = last.detail.rstrip(".")
    if cause == "not_reproduced":
        return f"The crash is not reproducible, so no setting can be blamed: {detail}."
    if cause == "marginal":
        return f"The run is at the edge of stability and no single cause can be named: {detail}."
    return f"No cause could be proved: {detail}."


_MECHANISMS: dict[Cause, str] = {
    "data": "The data is at fault, not a setting",
    "schedule": "The schedule raises the learning rate too far",
    "optimizer_state": "The optimizer's state was lost or damaged",
    "initialisation": "The run starts from a bad initialisation",
    "weight_decay": "The weight decay is too strong",
    "loss_function": "The loss leaves its own domain",
    "implementation": "The fault is in the training code",
    "not_learning": "No setting makes this learn, so model or labels are at fault",
    "overfitting": "The model learns its training data by heart",
    "joint": "Two causes come together",
    "precision": "Half precision loses numbers this training needs",
}


def _mechanism(cause: Cause, walked: Walk) -> str:
    assert walked.answer is not None
    detail = walked.answer.detail.rstrip(".")
    return f"{_MECHANISMS[cause]}: {detail}."


def _variable(facts: Facts, cause: Cause, path: tuple[Evidence, ...]) -> str:
    setup, cure = facts.setup, facts.ladder(cause).cure
    assert cure is not None
    dose = cure.dose if facts.fix_dose is None else facts.fix_dose
    answers = {step.node: step.answer for step in path}
    returned = answers.get("reversal") == "yes"
    again = " and putting it back brings the crash back" if returned else ""
    if cause == "learning_rate":
        rate = "The learning rate" if setup.lr is None else f"The learning rate {setup.lr:g}"
        doubt = " The crash came at the same step at lower rates, though." if unmoved(facts) else ""
        only = f" Only {', '.join(facts.modules)} must learn more slowly." if facts.modules else ""
        return f"{rate} is too high: ×{dose} of it trains through{again}.{doubt}{only}"
    if cause == "warmup":
        return (
            f"The full learning rate comes too early: the same rate trains through after a linear "
            f"warmup of {dose} steps instead of {setup.warmup_steps}."
        )
    if cause == "clip_norm":
        loose = (
            "are not clipped"
            if setup.clip_norm is None
            else f"pass the clip at {setup.clip_norm:g}"
        )
        return (
            f"Rare bursts of the gradient {loose}: clipping at norm {dose} trains through at the "
            f"full learning rate{again}."
        )
    if cause == "precision":
        only = f" Only {', '.join(facts.modules)} must compute in float32." if facts.modules else ""
        return (
            f"The number format {setup.precision} loses numbers this training needs: {dose} "
            f"trains through with nothing else changed{again}.{only}"
        )
    return (
        f"{setup.batch_size} samples per update are too few: ×{dose} trains through at the same "
        f"learning rate{again}."
    )
