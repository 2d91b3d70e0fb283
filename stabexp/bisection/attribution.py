"""From what the trials did to a verdict: cause, confidence, what is ruled out, and the fix.

Two opinions that look at different things, the step records before any replay and the replays
themselves, are the best measure of confidence. What is claimed is how often verdicts with the same
kind of evidence were right on runs whose cause was known; a proof that is missing lowers it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stabexp.bisection.decision_tree import TREE, Node, Walk, walk
from stabexp.bisection.evidence.answer import NOT_TRIED, amount, outcomes
from stabexp.bisection.evidence.step_size import ramp_bursts, unmoved
from stabexp.bisection.facts import Facts
from stabexp.bisection.wording import summary
from stabexp.records import (
    BLAMELESS,
    FAMILIES,
    VARIABLES,
    Cause,
    Evidence,
    Hypothesis,
    RuledOut,
    TrialRecord,
    Verdict,
)

AGREE = (134 + 214 + 1) / (139 + 215 + 2)
"""Laplace estimate of a right verdict when telemetry and replays agree on the family.

From 173 incidents of a prototype and the tuning families of the benchmark, taken together."""
DISAGREE = (27 + 76 + 1) / (34 + 78 + 2)
"""The same when only the replays speak for it: telemetry named another family, or none."""
UNPROVED = 0.75
"""Cap when part of the evidence is missing (a rival not tried, no crash brought back, no fix run)
or speaks against the cause: the crash does not move with the rate. A judgement: in the tuning
families of the benchmark 13 of 13 such verdicts were right, on runs of one's own fewer will be."""
MARGINAL = (5 + 1) / (7 + 2)
"""Laplace estimate for the verdict that a run is at the edge, from the same families."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """What the facts say so far: the cause, and how the tree got there."""

    cause: Cause
    path: tuple[Evidence, ...]
    walked: Walk
    cure: str = ""
    """Key of the trial that trained through with the fault alone taken away; empty without one."""


def cure_of(facts: Facts, walked: Walk) -> TrialRecord | None:
    """Return the trial that trained through with nothing but the cause taken away."""
    if walked.cause in BLAMELESS or walked.answer is None:
        return None
    if walked.answer.cure:
        pool = [*facts.tests.values(), *facts.pairs, *facts.data_trials]
        return next((t for t in pool if t.spec.key == walked.answer.cure), None)
    ladder = facts.ladder(walked.cause)
    return ladder.trial(ladder.cure.trial) if ladder.cure is not None else None


def judge(facts: Facts, tree: Mapping[str, Node] = TREE) -> Opinion:
    """Walk the tree, then ask whether its cause stands: does the crash return, the fix hold?"""
    walked = walk(facts, dict(tree))
    cause, path = walked.cause, walked.path
    cure = cure_of(facts, walked)
    if cure is None:
        return Opinion(cause=cause, path=path, walked=walked)
    path = tuple(replace(step, decisive=False) for step in path)
    key = cure.spec.key
    proof = _proof(facts)
    if facts.repeats:
        path = (*path, _repeats(facts))
    if walked.answer is not None and walked.answer.cure:
        path = (*path, proof)
        cause = "inconclusive" if proof.answer == "no" and cause != "data" else cause
    else:
        reversal = _reversal(facts, cause)
        if reversal.answer == "no":
            cause, path = "inconclusive", (*path, proof, reversal)
        else:
            cause = "inconclusive" if proof.answer == "no" else cause
            path = (*path, reversal, proof)
    path = (*path[:-1], replace(path[-1], decisive=True))
    return Opinion(cause=cause, path=path, walked=walked, cure=key)


def _repeats(facts: Facts) -> Evidence:
    held = [record for record in facts.repeats if record.outcome == "cured"]
    return Evidence(
        node="repeats",
        question="Does the cure hold in other orders of the data, where it crashes without?",
        answer="yes" if len(held) == len(facts.repeats) else "no",
        detail=f"in {len(held)} of {len(facts.repeats)}",
        trials=tuple(record.spec.key for record in facts.repeats),
    )


def _reversal(facts: Facts, cause: str) -> Evidence:
    question = "Does the crash come back when the original value is put back?"
    trial = facts.reversal
    if cause == "warmup" or (cause == "clip_norm" and ramp_bursts(facts)):
        starts = tuple(r.spec.key for r in facts.controls if r.spec.from_step == 0)
        answer = "yes" if starts else NOT_TRIED
        what = "a ramp that is over" if cause == "warmup" else "the burst of the initial weights"
        detail = f"{what} cannot be had again; from scratch without the cure the run "
        detail += "crashed" if starts else "was not replayed"
    elif cause == "clip_norm" and (again := facts.disproved.get("data")) is not None:
        starts = (again.spec.key,)
        assert again.divergence is not None
        answer = "yes"
        detail = f"unclipped it crashed again at step {again.divergence.detected}, on other samples"
    elif trial is None:
        starts = ()
        answer = NOT_TRIED
        why = "the budget ran out" if facts.spent else "the run ends too soon after the cure"
        detail = f"could not be tried: {why}"
    else:
        starts = (trial.spec.key,)
        answer, detail = _put_back(trial)
        if answer == "no" and cause == "clip_norm":
            answer, detail = "not clearly", f"{detail}; no burst as large came in that time"
    return Evidence(node="reversal", question=question, answer=answer, detail=detail, trials=starts)


def _put_back(trial: TrialRecord) -> tuple[str, str]:
    """Return what a reversal shows: the answer and its figures."""
    where = f"step {trial.spec.from_step}"
    if trial.divergence is not None:
        after = trial.divergence.detected - trial.spec.from_step + 1
        return "yes", f"{after} steps after it was put back at {where}"
    if trial.outcome == "inconclusive":
        return NOT_TRIED, f"could not be tried: {trial.note}"
    if trial.outcome == "delayed":
        # No crash, but the harm is back: neither proof nor disproof.
        return "not clearly", f"put back at {where}: {trial.note}"
    return "no", (
        f"with the original value from {where} on the run stayed stable for {trial.steps} steps, "
        "so something that happened once set it off: a batch, a state"
    )


def _proof(facts: Facts) -> Evidence:
    trial = facts.proof
    question = "Does the run with the fix go on past the horizon, and learn?"
    if trial is None:
        why = "the budget ran out" if facts.spent else "the curing replay reached the run's end"
        answer = NOT_TRIED if facts.spent else "yes"
        return Evidence(node="proof", question=question, answer=answer, detail=why)
    if trial.spec.patch:
        question = "Does the run with the fix, started from scratch, pass the horizon and learn?"
    answer = {"cured": "yes", "inconclusive": NOT_TRIED}.get(trial.outcome, "no")
    if answer == "no" and trial.divergence is None and not trial.spec.patch:
        answer = "not clearly"  # the cure has learned; now it goes on, and its loss wanders
    return Evidence(
        node="proof",
        question=question,
        answer=answer,
        detail=trial.note or trial.outcome,
        trials=(trial.spec.key,),
    )


def confidence(facts: Facts, opinion: Opinion, telemetry: str) -> float:
    """Return how often verdicts with this evidence are right, 0 to 1.

    Step records alone never say "not reproduced" or "marginal", so for these only replays speak.
    """
    if opinion.cause == "inconclusive":
        return 0.0
    agree = FAMILIES.get(telemetry) == FAMILIES[opinion.cause]
    value = AGREE if agree else DISAGREE
    answers = {step.node: step.answer for step in opinion.path}
    missing = NOT_TRIED in answers.values() or answers.get("repeats") == "no"
    if "reversal" in answers:
        missing |= answers["reversal"] != "yes"
    if opinion.cure:
        missing |= answers["proof"] != "yes"
    culprit = opinion.walked.answer.culprit if opinion.walked.answer else None
    if culprit is not None and not opinion.cure:
        suspicious = [i for i in facts.broken_rules if i["strength"] != "certain"]
        missing |= any(item["rule"] == culprit.kind for item in suspicious)
    against = opinion.cause == "learning_rate" and unmoved(facts)
    if missing or against:
        value = min(value, UNPROVED)
    if opinion.cause == "marginal":
        value = min(value, MARGINAL)
    return round(value, 3)


def ruled_out(facts: Facts, opinion: Opinion) -> tuple[RuledOut, ...]:
    """Return every variable that is not the cause, and how that is known."""
    cause = opinion.cause
    found = []
    details = {step.node: step.detail for step in opinion.path}
    ladders = {**facts.ladders, **facts.beside}
    for variable, ladder in ladders.items():
        if variable == cause:
            continue
        keys = tuple(record.spec.key for record in ladder.trials)
        if ladder.cured and ladder.cure is not None:
            if cause not in BLAMELESS:
                why = details.get(variable) or (
                    f"{amount(variable, ladder.cure.dose)} makes the symptom go away, but setting "
                    f"{cause} right cures with {variable} as it was"
                )
                found.append(RuledOut(variable=variable, why=why, masker=True, trials=keys))
            continue
        why = f"no robust cure: {outcomes(ladder)}"
        if ladder.undecided:
            shown = f" after {outcomes(ladder)}" if ladder.trials else ""
            why = f"not ruled out: {ladder.skipped}{shown}"
        elif ladder.untold:
            skipped = ladder.skipped
            why = f"not tried: {skipped}" if skipped else f"not known: {outcomes(ladder)}"
        found.append(RuledOut(variable=variable, why=why, trials=keys))
    if cause not in BLAMELESS:
        for variable in VARIABLES:
            if variable == cause or variable in ladders:
                continue
            if variable not in facts.variables:
                why = "not tried: left out by request"
            else:
                why = details.get(variable) or f"not tried: {cause} was found and proved before it"
            found.append(RuledOut(variable=variable, why=why))
    return tuple(found)


def hypotheses(
    facts: Facts, opinion: Opinion, telemetry: tuple[str, str]
) -> tuple[Hypothesis, ...]:
    """Return what is still possible when nothing could be proved, most plausible first."""
    if opinion.cause not in {"inconclusive", "marginal"}:
        return ()
    found: dict[str, Hypothesis] = {}

    def add(cause: str, weight: float, why: str) -> None:
        known = found.get(cause)
        if cause in FAMILIES and cause not in BLAMELESS and (not known or known.weight < weight):
            found[cause] = Hypothesis(cause=cause, why=why, weight=weight)  # type: ignore[arg-type]

    add(telemetry[0], 0.5, f"the step records suggest it: {telemetry[1]}")
    if (item := facts.non_finite) is not None:
        add("implementation", 0.4, f"{item['explanation']} at {item.get('source')}")
    for item in facts.broken_rules:
        add("implementation", 0.45, f"{item['rule']} at {item['place']}")
    for variable, ladder in facts.ladders.items():
        if ladder.cured and ladder.cure is not None:
            add(variable, 0.4, f"{amount(variable, ladder.cure.dose)} cures robustly")
        elif any(r.outcome == "cured" for r in ladder.trials):
            add(variable, 0.3, f"cures, but not robustly: {outcomes(ladder)}")
        elif any(r.outcome == "delayed" for r in ladder.trials):
            add(variable, 0.2, f"delays the crash: {outcomes(ladder)}")
    if facts.data is not None and facts.data.verdict == "hard_batch":
        add("data", 0.3, facts.data.why)
    return tuple(sorted(found.values(), key=lambda item: -item.weight))


def with_settings(command: Sequence[str], settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a `stabexp run` command with settings, in place of those it has for the same keys."""
    kept: list[str] = []
    for word in command:
        if kept and kept[-1] == "-o" and word.partition("=")[0].strip() in settings:
            kept.pop()
        else:
            kept.append(word)
    return (*kept, *(part for key, value in settings.items() for part in ("-o", f"{key}={value}")))


def verdict(
    facts: Facts,
    *,
    run_id: str,
    bisect_id: str,
    telemetry: tuple[str, str],
    fix: Mapping[str, Any],
    all_trials: Sequence[TrialRecord],
    seconds: float,
    command: Sequence[str],
    tree: Mapping[str, Node] = TREE,
) -> Verdict:
    """Return the verdict on everything that was found.

    Args:
        facts: What the run and its trials showed.
        run_id: The diverged run.
        bisect_id: The bisect.
        telemetry: The second opinion: cause and reason.
        fix: Experiment keys that set the cause right.
        all_trials: Every trial, for the cost; one that was asked for twice counts once.
        seconds: Wall time spent.
        command: Words of the command that starts the diverged run again.
        tree: The questions.
    """
    opinion = judge(facts, tree)
    named = opinion.cause not in BLAMELESS
    proved = any(step.node == "proof" and step.answer == "yes" for step in opinion.path)
    applied = dict(fix) if named and opinion.cure else {}
    following = with_settings(command, applied) if applied else ("stabexp", "log", run_id)
    different = {record.spec.key: record for record in all_trials}
    answer = opinion.walked.answer
    cause, reason = telemetry
    return Verdict(
        run_id=run_id,
        bisect_id=bisect_id,
        cause=opinion.cause,
        confidence=confidence(facts, opinion, cause),
        summary=summary(facts, opinion.cause, opinion.path, opinion.walked),
        path=opinion.path,
        cures=tuple(
            ladder.cure
            for ladder in (*facts.ladders.values(), *facts.beside.values())
            if ladder.cure is not None
        ),
        ruled_out=ruled_out(facts, opinion),
        fix=applied,
        fix_proved=named and proved,
        culprit=answer.culprit if named and answer is not None else None,
        point_of_no_return=facts.point_of_no_return,
        hypotheses=hypotheses(facts, opinion, telemetry),
        divergence=facts.divergence,
        good_step=facts.good_step,
        telemetry=f"{cause}: {reason}",
        trials=len(different),
        replayed_steps=sum(record.cost for record in different.values()),
        crash_steps=facts.divergence.detected + 1,
        seconds=seconds,
        next_command=shlex.join(following),
    )
