"""What can happen to a training that is known to work: nothing, a slow decline, a sudden blow.

Clean scenarios change what healthy trainings change (rates that rise and fall, batches, the data).
Gradual ones go wrong by a small factor per step. Abrupt ones strike in one step.
"""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

from experiments.benchmark.programs import BenchmarkTask, Recipe

STEPS = 400


class Scenario:
    """Nothing happens.

    Subclasses change one thing.
    """

    steps = STEPS

    def __init__(self, draw: Random, *, task: BenchmarkTask, family: str) -> None:
        self.task = task
        self.family = family
        self.begins: int | None = None
        """The step from which something is wrong, None when nothing ever is."""
        self.prepare(draw)

    def prepare(self, draw: Random) -> None:
        """Draw what differs from program to program."""

    def recipe(self, recipe: Recipe) -> Recipe:
        """Return the settings."""
        return recipe

    def rate(self, step: int, *, factor: float) -> float:
        """Return the factor on the base rate; `factor` is that of the recipe's warmup."""
        return factor

    def batch(self, step: int, batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the batch that is trained on."""
        return batch

    def model(self, model: nn.Module) -> nn.Module:
        """Return the new model."""
        return model

    def grows(self, name: str) -> bool:
        """Return whether the parameter is one of those with a rate or decay of their own."""
        return False

    def before(self, step: int, *, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Act before the batch of `step` is worked on; `optimizer` has those that grow first."""


class LongWarmup(Scenario):
    """The rate rises in a straight line over half the run."""

    def recipe(self, recipe: Recipe) -> Recipe:
        return replace(recipe, warmup=self.steps // 2)


class Cosine(Scenario):
    """The rate falls to zero."""

    def rate(self, step: int, *, factor: float) -> float:
        return factor * 0.5 * (1 + math.cos(math.pi * step / self.steps))


class Restarts(Scenario):
    """The rate falls to a hundredth and comes back, every hundred steps."""

    def rate(self, step: int, *, factor: float) -> float:
        return factor * max(0.01, 0.5 * (1 + math.cos(math.pi * (step % 100) / 100)))


class OneCycle(Scenario):
    """The rate rises over a third of the run to twice the usual one, and falls."""

    def rate(self, step: int, *, factor: float) -> float:
        peak = 0.35 * self.steps
        share = step / peak if step < peak else 1 - (step - peak) / (self.steps - peak)
        return 0.04 + 1.5 * max(0.0, share)


class Drops(Scenario):
    """The rate is divided by ten twice."""

    def rate(self, step: int, *, factor: float) -> float:
        return factor * 0.1 ** (step // 150)


class SmallBatches(Scenario):
    """Four samples a batch, at half the rate."""

    def recipe(self, recipe: Recipe) -> Recipe:
        return replace(recipe, batch=4)

    def rate(self, step: int, *, factor: float) -> float:
        return factor * 0.5


class Curriculum(Scenario):
    """The data becomes harder from one step to the next: noise on inputs, or new texts."""

    def prepare(self, draw: Random) -> None:
        self.at = draw.randrange(120, 280)
        self.strength = draw.uniform(0.3, 0.6)

    def batch(self, step: int, batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if step < self.at:
            return batch
        inputs, *others = batch
        if inputs.is_floating_point():
            return (inputs + self.strength * torch.randn_like(inputs), *others)
        strange = torch.rand(inputs.shape) < 0.25 * self.strength
        return (torch.where(strange, inputs.roll(1, 0), inputs), *others)


class Decay(Scenario):
    """Weight decay ten times the usual one."""

    def recipe(self, recipe: Recipe) -> Recipe:
        strong = 0.1 if recipe.optimizer["name"] == "adamw" else 0.002
        return replace(recipe, optimizer={**recipe.optimizer, "weight_decay": strong})


class Half(Scenario):
    """Half precision with a gradient scaler."""

    def recipe(self, recipe: Recipe) -> Recipe:
        return replace(recipe, precision="fp16")


class Gradual(Scenario):
    """Something grows by a small factor per step."""

    def prepare(self, draw: Random) -> None:
        self.begins = draw.randrange(110, 170)
        self.growth = math.exp(draw.uniform(math.log(0.006), math.log(0.025)))


class RateRamp(Gradual):
    """The rate grows without end, as from a wrong unit or exponent in a schedule."""

    def rate(self, step: int, *, factor: float) -> float:
        assert self.begins is not None
        return factor * (1 + 2 * self.growth) ** max(0, step - self.begins)


class WrongDecay(Gradual):
    """Weight decay with the wrong sign, so that some weights grow by a factor per step."""

    def before(self, step: int, *, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        if step == self.begins:
            group = optimizer.param_groups[0]
            keeps = 1 - group.get("momentum", 0.0)
            group["weight_decay"] = -self.growth * keeps / group["lr"]


class WeightGrowth(WrongDecay):
    """All weights grow."""

    def grows(self, name: str) -> bool:
        return True


class LogitDrift(WrongDecay):
    """The output layer grows."""

    def prepare(self, draw: Random) -> None:
        super().prepare(draw)
        self.growth *= 1.5

    def grows(self, name: str) -> bool:
        return name.startswith(self.task.wide + ".")


class AttentionGrowth(WrongDecay):
    """Queries and keys grow, until float16 cannot hold their products."""

    def recipe(self, recipe: Recipe) -> Recipe:
        return replace(recipe, precision="fp16")

    def prepare(self, draw: Random) -> None:
        super().prepare(draw)
        self.growth *= 2.5  # the task pulls them back

    def grows(self, name: str) -> bool:
        return ".qkv." in name


class Times(nn.Module):
    """Multiply by a factor that may be changed."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = 1.0

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class Headroom(Gradual):
    """In float16 an activation is held larger and larger, and divided again at once."""

    def recipe(self, recipe: Recipe) -> Recipe:
        return replace(recipe, precision="fp16")

    def prepare(self, draw: Random) -> None:
        super().prepare(draw)
        self.growth *= 1.5
        self.start = 2.0 ** draw.randrange(6, 10)

    def model(self, model: nn.Module) -> nn.Module:
        self.up, self.down = Times(), Times()
        wide = model.get_submodule(self.task.wide)
        model.set_submodule(self.task.wide, nn.Sequential(wide, self.up, self.down))
        return model

    def before(self, step: int, *, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        assert self.begins is not None
        self.up.factor = self.start * (1 + 2 * self.growth) ** max(0, step - self.begins)
        self.down.factor = 1 / self.up.factor


EDGES = {
    "autoencoder": (0.25, 0.5),
    "cnn": (0.3, 0.6),
    "gpt_pre": (1.5, 3.0),
    "residual": (0.2, 0.4),
    "recommender": (10.0, 20.0),
    "rnn": (3.0, 6.0),
    "vit": (0.8, 2.0),
}
"""Family → rates at the end of the run, on the way to which gradient descent leaves its edge."""


class EdgeOfStability(Scenario):
    """Gradient descent on one batch; the rate rises in a straight line, as in a long warmup."""

    def prepare(self, draw: Random) -> None:
        self.begins = 20
        self.lr = draw.uniform(*EDGES[self.family])
        self.first: tuple[Tensor, ...] | None = None

    def recipe(self, recipe: Recipe) -> Recipe:
        sgd = {"name": "sgd", "lr": self.lr, "momentum": 0.9}
        return replace(recipe, optimizer=sgd, batch=128, warmup=self.steps, clip=None)

    def batch(self, step: int, batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        self.first = self.first or batch
        return self.first


class OneBatch(EdgeOfStability):
    """Gradient descent on one batch at a rate that stays well below the edge."""

    def prepare(self, draw: Random) -> None:
        super().prepare(draw)
        self.begins = None
        self.lr /= 30

    def recipe(self, recipe: Recipe) -> Recipe:
        return replace(super().recipe(recipe), warmup=60)


class Abrupt(Scenario):
    """Something happens in one step."""

    def prepare(self, draw: Random) -> None:
        self.begins = draw.randrange(120, 260)
        self.strength = 10 ** draw.uniform(1.5, 2.5)
        self.place = draw.random()


class BadSamples(Abrupt):
    """From one step on inputs come far too large; texts are noise."""

    def batch(self, step: int, batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        assert self.begins is not None
        inputs, *others = batch
        if step < self.begins:
            return batch
        if inputs.is_floating_point():
            return (inputs * self.strength, *others)
        return (*batch[:-1], batch[-1] * self.strength)


class BitFlip(Abrupt):
    """One weight's highest exponent bit flips."""

    @torch.no_grad()
    def before(self, step: int, *, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        if step == self.begins:
            weights: Any = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
            chosen = weights[int(self.place * len(weights))].view(-1)
            chosen.view(torch.int32)[int(self.place * len(chosen))] ^= 1 << 30


class RateJump(Abrupt):
    """The rate is suddenly far too high."""

    def rate(self, step: int, *, factor: float) -> float:
        assert self.begins is not None
        return factor * (self.strength if step >= self.begins else 1.0)


CLEAN: dict[str, type[Scenario]] = {
    "usual": Scenario,
    "long_warmup": LongWarmup,
    "cosine": Cosine,
    "restarts": Restarts,
    "one_cycle": OneCycle,
    "rate_drops": Drops,
    "small_batches": SmallBatches,
    "curriculum": Curriculum,
    "decay": Decay,
    "half": Half,
    "one_batch": OneBatch,
}
GRADUAL: dict[str, type[Scenario]] = {
    "rate_ramp": RateRamp,
    "attention_growth": AttentionGrowth,
    "logit_drift": LogitDrift,
    "half_headroom": Headroom,
    "weight_growth": WeightGrowth,
    "edge_of_stability": EdgeOfStability,
}
ABRUPT: dict[str, type[Scenario]] = {
    "bad_sample": BadSamples,
    "bit_flip": BitFlip,
    "rate_jump": RateJump,
}
SCENARIOS = {**CLEAN, **GRADUAL, **ABRUPT}
