"""A bisect as it might have been recorded: a GPT whose rate was raised too far at step 128."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any, NamedTuple

from stabexp.records import (
    Change,
    Cure,
    Divergence,
    Evidence,
    Outcome,
    Role,
    RuledOut,
    StepRecord,
    TrialRecord,
    TrialSpec,
    Verdict,
)
from stabexp.reporting import Report

GOOD, ONSET, DETECTED, HORIZON = 120, 133, 141, 250
RUN_ID = "gpt-lr-3f9c1a"
EXPERIMENT = """\
name: gpt-lr
task: {name: gpt, args: {width: 64}}
optimizer:
  name: adamw
  lr: 3e-2
schedule: null
clip_norm: null
steps: 400
"""


class Bisect(NamedTuple):
    verdict: Verdict
    trials: list[TrialRecord]
    steps: list[StepRecord]
    trial_steps: dict[str, list[StepRecord]]

    def report(self, **more: Any) -> Report:
        return Report(
            verdict=self.verdict,
            trials=self.trials,
            steps=self.steps,
            trial_steps=self.trial_steps,
            **more,
        )


def _steps(outcome: Outcome, first: int, last: int, *, onset: int, seed: int) -> list[StepRecord]:
    noise = random.Random(seed)
    found = []
    for step in range(first, last + 1):
        loss = 1.9 + 2.3 * math.exp(-step / 60) + noise.gauss(0, 0.04)
        norm = 0.9 * math.exp(noise.gauss(0, 0.18))
        if outcome == "stalled":
            loss = 1.9 + 2.3 * math.exp(-GOOD / 60) + noise.gauss(0, 0.03)
            norm *= 0.8
        if outcome in {"diverged", "delayed"} and step >= onset:
            loss *= math.exp(0.62 * (step - onset + 1)) if step - onset < 14 else math.nan
            norm *= math.exp(1.1 * (step - onset + 1)) if step - onset < 13 else math.inf
        record = StepRecord(
            step=step, time=1.7e9 + step, loss=loss, lr=0.03, grad_norm=norm, batch_size=16
        )
        found.append(record)
    return found


def divergence(onset: int) -> Divergence:
    return Divergence(
        detector="loss_spike",
        detected=onset + 8,
        onset=onset,
        pattern="exponential_growth",
        value=168.4,
        limit=4.12,
        message="loss 168.4 at step 141 is above 4.12 and has been for 3 steps.",
    )


def bisect() -> Bisect:
    trials: list[TrialRecord] = []
    trial_steps: dict[str, list[StepRecord]] = {}

    def trial(
        role: Role,
        changes: Mapping[str, float | int | str],
        outcome: Outcome,
        *,
        first: int = GOOD,
        onset: int = ONSET,
        reason: str = "",
        note: str = "",
    ) -> str:
        spec = TrialSpec(
            role=role,
            changes=tuple(Change(variable=name, dose=dose) for name, dose in changes.items()),
            from_step=first,
            until_step=399 if role == "proof" else HORIZON,
            patch={"optimizer.lr": 0.0075} if role == "proof" else {},
            reason=reason,
        )
        fell = outcome in {"diverged", "delayed"}
        last = onset + 15 if fell else spec.until_step - 1
        last = first - 1 if outcome == "inconclusive" else last
        control = role == "control"
        steps = _steps(outcome, first, last, onset=onset, seed=1 if control else len(trials) + 20)
        if control:
            steps = [record for record in run if first <= record.step <= last]
        trial_steps[spec.key] = steps
        trials.append(
            TrialRecord(
                spec=spec,
                outcome=outcome,
                last_step=last,
                divergence=divergence(onset) if fell else None,
                start_loss=2.214 if steps else math.nan,
                end_loss=math.nan
                if not steps
                else math.inf
                if fell
                else 2.213
                if outcome == "stalled"
                else 1.936,
                seconds=2.1,
                number=len(trials),
                name=f"{len(trials):02d} {role}",
                note=note,
            )
        )
        return spec.key

    run = _steps("diverged", 0, ONSET + 15, onset=ONSET, seed=1)
    control = trial("control", {}, "diverged", reason="Does it happen again at all?")
    placebo = trial("placebo", {"learning_rate": 0.97}, "diverged", onset=132)
    shuffled = trial("placebo", {"shuffle": 1}, "diverged", onset=135)
    quarter = trial("dose", {"learning_rate": 0.25}, "cured", reason="The middle of the ladder.")
    milder = trial("dose", {"learning_rate": 0.5}, "delayed", onset=196)
    stronger = trial("dose", {"learning_rate": 0.1}, "cured")
    trial("dose", {"learning_rate": 0.001}, "stalled")
    clip = trial("dose", {"clip_norm": 0.45}, "cured")
    tighter = trial("dose", {"clip_norm": 0.225}, "cured")
    loose = trial("dose", {"clip_norm": 1.8}, "diverged", onset=138)
    exact = trial("dose", {"precision": "fp64"}, "diverged", onset=133)
    batch = trial("dose", {"batch_size": 4}, "diverged", onset=144)
    trial("dose", {"batch_size": 16}, "inconclusive", note="CUDA out of memory: 64 GiB asked for")
    ramp = trial("dose", {"warmup": 50}, "diverged", first=0, onset=137)
    back = trial("reversal", {}, "diverged", first=180, onset=188)
    proved = trial("proof", {}, "cured", first=0, reason="The fix as a user would run it.")
    path = (
        Evidence(
            node="control",
            question="Does the unchanged replay diverge again?",
            answer="yes",
            detail="It diverged from step 133, as the run did, and all 29 steps are equal "
            "bit for bit.",
            trials=(control,),
        ),
        Evidence(
            node="placebo",
            question="Does a change too small to be a remedy cure it?",
            answer="no",
            detail="Rate ×0.97 and another order of the data diverged within 2 steps of the "
            "control.",
            trials=(placebo, shuffled),
        ),
        Evidence(
            node="precision",
            question="Do more exact numbers cure it?",
            answer="no",
            detail="In fp64 it diverged from step 133 too.",
            trials=(exact,),
        ),
        Evidence(
            node="clip_norm",
            question="Do rare bursts of the gradient, which nothing clips, throw the run over?",
            answer="no",
            detail="The largest healthy norm is 1.6 × the median; clipping at 0.45 cuts every "
            "single update, which makes it a smaller rate.",
            trials=(clip, tighter, loose),
        ),
        Evidence(
            node="learning_rate",
            question="Is the steady rate itself too high?",
            answer="yes",
            detail="Rate ×0.25 cures, ×0.5 does not; warmup and batch_size do not cure.",
            trials=(quarter, milder, stronger, batch, ramp),
        ),
        Evidence(
            node="reversal",
            question="Does putting the old rate back bring the divergence back?",
            answer="yes",
            detail="Back at ×1 from step 180 it diverged from step 188.",
            trials=(back,),
        ),
        Evidence(
            node="proof",
            question="Does the run with the fix, started from scratch, pass the horizon and learn?",
            answer="yes",
            detail="no divergence in 399 steps; loss 4.2 → 1.936",
            trials=(proved,),
            decisive=True,
        ),
    )
    verdict = Verdict(
        run_id=RUN_ID,
        bisect_id="b1",
        cause="learning_rate",
        confidence=0.93,
        summary="The learning rate is too high: at a quarter of it the run passes the horizon "
        "and learns, at half of it it still diverges.",
        path=path,
        cures=(
            Cure(
                variable="learning_rate",
                dose=0.25,
                original=1.0,
                stronger_dose=0.1,
                milder_dose=0.5,
                robust=True,
                trial=quarter,
                removed=0.75,
            ),
            Cure(
                variable="clip_norm",
                dose=0.45,
                original=None,
                stronger_dose=0.225,
                milder_dose=1.8,
                robust=True,
                trial=clip,
                removed=0.52,
            ),
        ),
        ruled_out=(
            RuledOut(
                variable="clip_norm",
                why="it cuts every update, healthy ones too, so it acts as a smaller rate.",
                masker=True,
                trials=(clip, tighter),
            ),
            RuledOut(
                variable="precision",
                why="fp64 diverged at the same step as the control.",
                trials=(exact,),
            ),
            RuledOut(
                variable="batch_size",
                why="four times the batch diverged 11 steps later, within the noise.",
                trials=(batch,),
            ),
            RuledOut(
                variable="warmup",
                why="a ramp of 50 steps from scratch diverged four steps after the run did.",
                trials=(ramp,),
            ),
        ),
        fix={"optimizer.lr": 0.0075},
        fix_proved=bool(proved),
        divergence=divergence(ONSET),
        good_step=GOOD,
        telemetry="learning_rate, because the update ratio grew before the gradient norm did.",
        trials=len(trials),
        replayed_steps=sum(record.steps for record in trials),
        crash_steps=DETECTED,
        seconds=41.3,
        next_command=f"stabexp run experiments/gpt-lr.yaml --fix {RUN_ID}",
    )
    return Bisect(verdict, trials, run, trial_steps)
