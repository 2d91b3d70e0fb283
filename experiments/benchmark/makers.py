"""From four drawn numbers to a fault: which figures a number decides, and within what range."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from experiments.benchmark.faults import implementation as code
from experiments.benchmark.faults.base import Fault, Together, between
from experiments.benchmark.faults.configuration import HeavyWeights, Reconfigured
from experiments.benchmark.faults.data import BlankSample, BrokenSamples, Defect
from experiments.benchmark.faults.hardware import BitFlips
from experiments.benchmark.faults.initialisation import (
    EverythingTooLarge,
    LayerTooLarge,
    Unnormalised,
)
from experiments.benchmark.faults.loss_function import OwnCrossEntropy, OwnSoftmax
from experiments.benchmark.faults.optimizer_state import (
    StateDamaged,
    first_moment_scaled,
    second_moment_lost,
)
from experiments.benchmark.faults.precision import Overflow
from experiments.benchmark.faults.schedule import RateJump, Shape
from experiments.benchmark.place import Maker, Place
from experiments.benchmark.severity import AT_ONCE, CONFIDENT, CREEPING, EDGE, JUMP, TINY


def rate_too_high(place: Place) -> Fault:
    least = AT_ONCE[place.family]
    rate = between(place.severity, least, 4 * least, log=True)
    return Reconfigured(rate=rate, warmup=round(between(place.numbers[1], 15, 35)), steps=250)


def rate_creeping(place: Place) -> Fault:
    least = CREEPING[place.family]
    rate = between(place.severity, least, 2 * least, log=True)
    warmup = round(between(place.numbers[1], 200, 350))
    return Reconfigured(rate=rate, warmup=warmup, steps=warmup + 150)


def rate_jump(place: Place) -> Fault:
    shapes: tuple[Shape, ...] = ("jump", "climb", "peak")
    least = JUMP[place.family]
    by = between(place.severity, least, 4 * least, log=True)
    jump = RateJump(at=place.at, by=by, shape=shapes[int(3 * place.numbers[2])])
    return Together(jump, place.until(place.at))


def broken(defect: Defect) -> Maker:
    def fault(place: Place) -> Fault:
        count = 1 + int(3 * place.numbers[2])
        low, high = {"huge": (1e3, 1e5), "nan": (1, 1), "label": (3e3, 1e5)}[defect]
        factor = between(place.severity, low, high, log=True)
        ids = place.ids(place.at, count=count)
        broken = BrokenSamples(ids, defect=defect, factor=factor, at=place.at)
        return Together(broken, place.until(place.at))

    return fault


def heavy(clip: float | None) -> Maker:
    def fault(place: Place) -> Fault:
        per_batch = between(place.numbers[2], 0.03, 0.045)
        weight = between(place.severity, 500, 2000, log=True)
        heavy = round(per_batch / place.recipe.batch * place.samples)
        weights = HeavyWeights(heavy=heavy, samples=place.samples, weight=weight, clip=clip)
        return Together(weights, Reconfigured(steps=500))

    return fault


def sharp_start(warmup: int) -> Maker:
    """A start in which the loss is so steep that the full rate is too much, for a while."""

    def fault(place: Place) -> Fault:
        if place.family == "autoencoder":
            start: Fault = EverythingTooLarge(by=between(place.severity, 1.7, 2.2))
            rate = Reconfigured(rate=between(place.numbers[2], 3.8, 4.5), warmup=warmup, steps=300)
            return Together(start, rate)
        start = Unnormalised(deviation=between(place.severity, 0.28, 0.295))
        optimizer = {"name": "sgd", "lr": between(place.numbers[2], 0.23, 0.3)}
        optimizer |= {"weight_decay": 0.0, "momentum": 0.0}
        plain = Reconfigured(optimizer=optimizer, warmup=warmup, clip=None, steps=300)
        return Together(start, plain)

    return fault


def second_moment(place: Place) -> Fault:
    damage = StateDamaged(at=place.at, damage=second_moment_lost)
    return Together(damage, place.until(place.at))


def first_moment(place: Place) -> Fault:
    by = between(place.severity, 300, 10_000, log=True) * (-1 if place.numbers[2] < 0.5 else 1)
    damage = StateDamaged(at=place.at, damage=first_moment_scaled(by))
    return Together(damage, place.until(place.at))


def overflow(precision: str) -> Maker:
    def fault(place: Place) -> Fault:
        bears = between(place.severity, 3.0, 9.0)
        return Overflow(module=place.wide, bears=bears, precision=precision)

    return fault


def adam_in_half(place: Place) -> Fault:
    lr = between(place.severity, 3e-4, 5e-3, log=True)
    return Reconfigured(
        optimizer={"name": "adamw", "lr": lr, "momentum": 0.0}, precision="pure_fp16", steps=150
    )


def own_softmax(place: Place) -> Fault:
    return OwnSoftmax(bears=between(place.severity, 3.0, 7.0))


def own_cross_entropy(own: bool) -> Maker:
    def fault(place: Place) -> Fault:
        rate, coldest = CONFIDENT[place.family]
        settings = Reconfigured(rate=rate, steps=800)
        if not own:
            return settings
        hottest = 1.5 * coldest
        loss = OwnCrossEntropy(temperature=between(place.severity, coldest, hottest))
        return Together(loss, settings)

    return fault


def blank(part: Callable[[], Fault]) -> Maker:
    def fault(place: Place) -> Fault:
        blank = BlankSample(place.ids(place.at), at=place.at)
        return Together(blank, part(), place.until(place.at))

    return fault


def only_blank(place: Place) -> Fault:
    return Together(BlankSample(place.ids(place.at), at=place.at), place.until(place.at))


def not_zeroed(place: Place) -> Fault:
    return Together(code.NotZeroed(since=place.at), Reconfigured(steps=place.at + 250))


def not_divided(place: Place) -> Fault:
    micro_batches = 16
    rate = between(place.severity, 1.2, 2.0)
    return Together(
        code.NotDivided(micro_batches=micro_batches), Reconfigured(rate=rate, steps=150)
    )


def layer_too_large(place: Place) -> Fault:
    """A start from which a network with ReLUs explodes, or dies and stays flat."""
    by = between(place.severity, 100, 400, log=True)
    return Together(LayerTooLarge(by=by, place=place.numbers[1]), flat(place))


def flat(place: Place) -> Fault:
    """Nothing wrong, in a run that has to make progress over its first 200 steps."""
    return Reconfigured(options=watched({"window": 200}), steps=230)


def wide_start(deviation: float | None = None) -> Maker:
    """A transformer without norms whose weights are wide enough to explode, warmup or not."""

    def fault(place: Place) -> Fault:
        width = between(place.severity, 0.7, 1.0)
        optimizer = {"name": "sgd", "lr": 0.3, "weight_decay": 0.0, "momentum": 0.0}
        warmup = round(between(place.numbers[1], 30, 80))
        plain = Reconfigured(optimizer=optimizer, warmup=warmup, clip=None, steps=200)
        return Together(Unnormalised(deviation=deviation or width), plain)

    return fault


def spread(own: bool) -> Maker:
    """Shapes that broadcast: the net learns the mean image, which lies behind what is expected."""

    def fault(place: Place) -> Fault:
        settings = Reconfigured(options=watched({"expected": 3.2, "behind": 0.1}), steps=260)
        return Together(code.Broadcast(), settings) if own else settings

    return fault


def watched(plateau: Mapping[str, float]) -> dict[str, object]:
    """Return the option that also detects a plateau, with these arguments."""
    detectors: dict[str, dict[str, float]] = {
        "non_finite": {},
        "divergence": {},
        "gradient_explosion": {},
    }
    return {"detectors": detectors | {"plateau": dict(plateau)}}


def tiny_batch(own: bool) -> Maker:
    """A batch of one or two at a rate that sixteen times as many samples bear."""

    def fault(place: Place) -> Fault:
        batch, low, high = TINY[place.family]
        rate = between(place.severity, low, high, log=True)
        return Reconfigured(rate=rate, batch=batch if own else 16 * batch, steps=400)

    return fault


def weight_decay(place: Place) -> Fault:
    name = str(place.recipe.optimizer["name"])
    strength = between(place.severity, 0.5, 5.0, log=True) * (100 if name == "adamw" else 1)
    return Reconfigured(optimizer={"weight_decay": strength}, watched=True, steps=350)


def joint(kind: Literal["data and schedule", "state and data"]) -> Maker:
    def fault(place: Place) -> Fault:
        at = place.at
        ids = place.ids(at, count=2)
        nan = BrokenSamples(ids, defect="nan", factor=1, at=at)
        if kind == "data and schedule":
            by = 4 * JUMP[place.family]
            return Together(nan, RateJump(at=at + 2, by=by, shape="jump"), place.until(at))
        damage = StateDamaged(at=at + 2, damage=first_moment_scaled(3000.0))
        return Together(nan, damage, place.until(at))

    return fault


def nothing_helps(place: Place) -> Fault:
    at = place.at
    nan = BrokenSamples(place.ids(at, count=1), defect="nan", factor=1, at=at)
    jump = RateJump(at=at + 2, by=4 * JUMP[place.family], shape="jump")
    return Together(nan, jump, code.NotZeroed(since=at + 1), place.until(at))


def at_the_edge(fixed_rate: float | None = None) -> Maker:
    """So few samples per update that it hangs on their order whether the run survives."""

    def fault(place: Place) -> Fault:
        batch, rate, seed = EDGE[place.family][place.number]
        options = {"seed": seed}
        return Reconfigured(rate=fixed_rate or rate, batch=batch, steps=400, options=options)

    return fault


def flips(place: Place) -> Fault:
    return BitFlips(probability=between(place.severity, 0.01, 0.06, log=True))
