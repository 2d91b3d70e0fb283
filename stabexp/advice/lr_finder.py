"""A ramp of the learning rate finds what to use, and short trainings from scratch check it.

The ramp raises the rate from 1e-7 to 10 in 200 steps and stops where the loss has risen to 4 times
its best. It reaches high rates only after many low ones, as a long warmup would, so its figure is
too high for a training that begins at the full rate (source row C7). So the figure is tried: from
scratch, with the warmup that the run has and without any, and lowered until a trial holds. Rate,
batch size and regularisation depend on each other: the figure is for the settings as they are, and
says nothing once one of them is changed. Source rows C5, C7, B6.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

from stabexp.advice.rate_curve import Ended, Smoothed, Suggestion, suggest
from stabexp.advice.rates import ConstantRate, RateRamp
from stabexp.advice.trial_training import Trained, train_once
from stabexp.errors import StabexpError
from stabexp.training import Program

PROBE_STEPS = 60
"""Steps of a trial at one rate, beside its warmup."""
LONGEST_WARMUP = 200
"""A warmup longer than this is tried in this many steps, which is the harder test."""
ENDS = 10
"""Losses at the end of a trial whose median is compared with the first ones."""
LOWER = (1.0, 1 / 3, 0.1, 1 / 30)
"""Shares of the ramp's figure that are tried in turn until one holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A short training from scratch at one rate."""

    rate: float
    warmup: int
    """Steps of linear warmup."""
    steps: int
    held: bool
    """Whether it neither diverged nor ended with a higher loss than it began with."""
    first_loss: float
    last_loss: float
    """Median of the last ten losses, NaN when it broke off before."""


@dataclass(frozen=True, kw_only=True)
class FoundRate:
    """What a ramp and its trials say about the learning rate."""

    rate: float | None
    """The rate to use, with the warmup that the run has; None when no trial held."""
    figure: float
    """What the ramp alone suggests, to two digits."""
    suggestion: Suggestion
    """How it was read off the ramp."""
    rates: tuple[float, ...]
    losses: tuple[float, ...]
    smoothed: tuple[float, ...]
    ended: Ended
    probes: tuple[Probe, ...]
    """With the run's own warmup, in the order tried, and one without or with another warmup."""
    warmup_steps: int
    """Of the run as it is configured; 0 for none."""
    configured: float
    """The rate that the loop configures for the first parameter group."""
    optimizer: str
    tuning: str
    """\"full\" or "lora" for a trained model, "" for new weights."""
    state_hash: str
    """SHA-256 of model, optimizer, schedule, scaler and random streams: equal before and after."""
    notices: tuple[str, ...]


def find_rate(
    program: Program,
    *,
    first: float = 1e-7,
    last: float = 10.0,
    steps: int = 200,
    probe_steps: int = PROBE_STEPS,
    tuning_of: Callable[[Any], str] = lambda model: "",
    on_phase: Callable[[str], None] = lambda text: None,
) -> FoundRate:
    """Return the learning rate to use, and put everything back that was trained for it.

    Args:
        program: What to train; its training function is called once for the ramp and per trial.
        first, last: The rates between which the ramp goes.
        steps: How many steps it takes.
        probe_steps: Steps of a trial at one rate; 0 tries none.
        tuning_of: Says of the model whether it is "full" or "lora" fine-tuned, or "" for neither.
        on_phase: Told what is being done.

    Raises:
        StabexpError: If the ramp has too few points, or the loss does not fall in it.
        TrainingError: If the training function raised.
    """
    if not 0 < first < last or steps < 2:
        raise StabexpError(
            f"lr-find: a ramp from {first:g} to {last:g} in {steps} steps does not rise; "
            "give 0 < first < last and at least 2 steps"
        )
    on_phase(f"ramp: {first:g} to {last:g} in {steps} steps")
    ramp = RateRamp(first=first, last=last, steps=steps)
    smoothed = Smoothed()
    trained = train_once(
        program,
        (ramp,),
        steps=steps,
        judged=False,
        goes_on=lambda record: smoothed.add(record.loss),
        look=tuning_of,
    )
    losses = [record.loss for record in trained.records]
    rates = [record.lr for record in trained.records]
    short = smoothed.ended is None and len(losses) < steps
    try:
        suggestion = suggest(rates, losses, smoothed.values)
    except StabexpError as error:
        if not short:
            raise
        raise StabexpError(
            f"{error}. The training ended by itself after {len(losses)} of {steps} steps: let it "
            f"go on longer, or ask for a ramp of {len(losses)} (--steps)"
        ) from error
    warmup, known = _warmup(program, trained)
    figure = _two_digits(suggestion.rate)
    probes = _probed(program, figure, warmup, probe_steps, on_phase)
    good = [probe.rate for probe in probes if probe.held and probe.warmup == _tried(warmup)]
    return FoundRate(
        rate=good[0] if good else figure if not probes else None,
        figure=figure,
        suggestion=suggestion,
        rates=tuple(rates),
        losses=tuple(losses),
        smoothed=tuple(smoothed.values),
        ended=smoothed.ended or ("training over" if short else "ramp over"),
        probes=probes,
        warmup_steps=warmup,
        configured=trained.configured[0],
        optimizer=trained.optimizer,
        tuning=str(trained.looked),
        state_hash=trained.state_hash,
        notices=tuple(_notices(trained, suggestion, smoothed, warmup, known, short=short)),
    )


def _warmup(program: Program, trained: Trained) -> tuple[int, bool]:
    """Return the steps of warmup that the run has, and whether its end is known."""
    asked = program.settings.interventions.get("warmup", program.settings.warmup_steps)
    if asked:
        return int(asked), True
    own = trained.rates
    count = 0
    while count + 1 < len(own) and own[count + 1] > own[count]:
        count += 1
    rises = count > 0 and own[0] <= 0.5 * own[count]
    # A ramp that begins at zero is at k / steps in step k, another one at (k + 1) / steps.
    ramp = count + (own[0] > 0)
    return (ramp, count + 1 < len(own)) if rises else (0, True)


def _two_digits(rate: float) -> float:
    return float(f"{rate:.2g}")


def _tried(warmup: int) -> int:
    return min(warmup, LONGEST_WARMUP)


def _probed(
    program: Program,
    rate: float,
    warmup: int,
    steps: int,
    on_phase: Callable[[str], None],
) -> tuple[Probe, ...]:
    """Try the ramp's figure, lower it until it holds, and see what the warmup is worth."""
    if not steps:
        return ()
    probes: list[Probe] = []

    def held(share: float, ramp: int) -> bool:
        lowered = _two_digits(rate * share)
        with_ramp = f", {ramp} steps of warmup" if ramp else ", no warmup"
        on_phase(f"trial: {lowered:g}{with_ramp}")
        probes.append(probe(program, lowered, warmup=ramp, steps=ramp + steps))
        return probes[-1].held

    first = next((share for share in LOWER if held(share, _tried(warmup))), None)
    if warmup:
        held(1.0, 0)
    elif first != 1.0:
        held(1.0, steps // 2)
    return tuple(probes)


def probe(
    program: Program,
    rate: float,
    *,
    warmup: int,
    steps: int,
) -> Probe:
    """Train from scratch at one rate for up to `steps` steps and put everything back."""
    trained = train_once(program, (ConstantRate(dose=rate, warmup=warmup),), steps=steps)
    losses = [record.loss for record in trained.records]
    over = trained.divergence is not None or not all(map(math.isfinite, losses))
    begins, ends = median(losses[:ENDS]), math.nan if over else median(losses[-ENDS:])
    return Probe(
        rate=rate,
        warmup=warmup,
        steps=len(losses),
        held=not over and ends <= begins,
        first_loss=begins,
        last_loss=ends,
    )


def _notices(
    trained: Trained,
    suggestion: Suggestion,
    smoothed: Smoothed,
    warmup: int,
    known: bool,
    *,
    short: bool,
) -> list[str]:
    found = []
    if short:
        found.append(
            f"the training ended by itself after {len(trained.records)} steps, before the ramp was "
            "over; higher rates were not seen"
        )
    if smoothed.ended is None and suggestion.points == len(smoothed.values):
        found.append(
            "the loss was still falling at the end of the ramp; a higher rate may do: raise --last"
        )
    if len(trained.configured) > 1:
        found.append(
            f"the loop steps {len(trained.configured)} optimizers; each was given the same rate"
        )
    if warmup and not known:
        found.append(
            f"the run's own rate still rises after {warmup} steps: its warmup is longer than the "
            "ramp was"
        )
    if warmup > LONGEST_WARMUP:
        found.append(f"the warmup of {warmup} steps was tried in {LONGEST_WARMUP}")
    return found
