"""The programs: a family, a scenario and a number make one small real training.

Rules are made on one half of the families and scored on the other, whose runs nobody looks at
before.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from experiments.benchmark.programs import family
from experiments.early_warning.scenarios import ABRUPT, CLEAN, GRADUAL, SCENARIOS, Scenario
from stabexp.records import StepRecord
from stabexp.state.random_streams import isolated_streams
from stabexp.tasks.settings import OptimizerSettings, ScheduleSettings
from stabexp.training.execute import execute
from stabexp.training.run import Run
from stabexp.training.settings import Program as Training
from stabexp.training.settings import RunSettings

FAMILIES = {
    "made_on": ("autoencoder", "cnn", "gpt_pre", "lstm", "mlp", "residual", "two_tower"),
    "scored_on": ("batchnorm", "gpt_post", "lora", "rnn", "recommender", "vae", "vit"),
}
"""Half → families of experiments/benchmark."""
SMOOTH = {
    "made_on": ("autoencoder", "cnn", "gpt_pre", "residual"),
    "scored_on": ("recommender", "rnn", "vit"),
}
"""Half → families in which gradient descent on one batch can be watched at its edge."""
ATTENTION = {"made_on": ("gpt_pre",), "scored_on": ("gpt_post", "vit")}
HEADS = {
    "made_on": ("cnn", "lstm", "mlp", "residual"),
    "scored_on": ("batchnorm", "recommender", "rnn", "vit"),
}
"""Half → families with an output layer of their own that a softmax reads."""
SPECIAL = {
    "one_batch": SMOOTH,
    "attention_growth": ATTENTION,
    "edge_of_stability": SMOOTH,
    "logit_drift": HEADS,
}
DRAWS = 14
"""Programs of one gradual class in one half."""


@dataclass(frozen=True, kw_only=True)
class Draw:
    """One program."""

    half: str
    scenario: str
    family: str
    number: int = 0

    @property
    def name(self) -> str:
        """A name that decides everything about it."""
        return f"{self.scenario}-{self.family}-{self.number}"

    @property
    def kind(self) -> str:
        """clean, gradual or abrupt."""
        kinds = {"clean": CLEAN, "gradual": GRADUAL, "abrupt": ABRUPT}
        return next(kind for kind, table in kinds.items() if self.scenario in table)

    def build(self) -> Scenario:
        """Return what happens, drawn from the name."""
        return SCENARIOS[self.scenario](
            Random(self.name), task=family(self.family)(), family=self.family
        )


def draws(half: str) -> list[Draw]:
    """Return every program of a half."""
    made: list[Draw] = []
    for scenario in CLEAN:
        families = SPECIAL.get(scenario, FAMILIES)[half]
        made += [Draw(half=half, scenario=scenario, family=f) for f in families]
    for scenario in (*GRADUAL, *ABRUPT):
        families = SPECIAL.get(scenario, FAMILIES)[half]
        count = DRAWS if scenario in GRADUAL else DRAWS // 2
        made += [
            Draw(half=half, scenario=scenario, family=families[i % len(families)], number=i)
            for i in range(count)
        ]
    return made


def settings_of(
    draw: Draw, scenario: Scenario, *, stabilisers: Mapping[str, Any] | None = None
) -> RunSettings:
    """Return the settings of a program's training."""
    recipe = scenario.recipe(family(draw.family).healthy)
    more = {"stabilisers": dict(stabilisers)} if stabilisers else {}
    monitors = {"layers": {}} | ({"half_range": {}} if recipe.precision == "fp16" else {})
    return RunSettings(
        name=draw.name,
        seed=draw.number,
        steps=scenario.steps,
        threads=1,
        precision=recipe.precision,
        clip_norm=recipe.clip,
        batch_size=recipe.batch,
        monitors=monitors,
        **more,
    )


def records_of(
    draw: Draw, *, stabilisers: Mapping[str, Any] | None = None, after: int = 40
) -> list[StepRecord]:
    """Train, and return every step until `after` steps without a finite loss, or the end."""
    scenario = draw.build()
    settings = settings_of(draw, scenario, stabilisers=stabilisers)
    records: list[StepRecord] = []
    run = Run(settings, on_step=records.append, judged=False)

    def train(run: Run) -> None:
        lost = 0
        for record in steps(run, draw=draw, scenario=scenario):
            lost = 0 if math.isfinite(record) else lost + 1
            if lost > after:
                break

    execute(Training(settings=settings, train=train), run)
    return records


def steps(run: Run, *, draw: Draw, scenario: Scenario) -> Any:
    """Train as the recipe says, with the scenario in it; yield the loss of every step."""
    task, recipe = scenario.task, scenario.recipe(family(draw.family).healthy)
    model = scenario.model(task.model().to(run.device, run.number_format.weights))
    trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    groups = [[p for n, p in trained if scenario.grows(n) == grown] for grown in (True, False)]
    optimizer = OptimizerSettings.model_validate(dict(recipe.optimizer)).build(
        [{"params": group} for group in groups if group]
    )
    ramp = ScheduleSettings(warmup_steps=recipe.warmup)
    scheduler = LambdaLR(
        optimizer, lambda s: scenario.rate(s, factor=ramp.factor(s, scenario.steps))
    )
    scaler = run.scaler()
    with isolated_streams():
        data: Any = task.dataset()
    seen = watch(model, head=task.wide)
    loop = run.steps(data, model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler)
    for batch in loop:
        scenario.before(run.step, model=model, optimizer=optimizer)
        with run.autocast():
            loss = task.loss(model, scenario.batch(run.step, batch))
        run.log(loss, **seen)
        optimizer.zero_grad()
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        with warnings.catch_warnings():  # a scaler may leave the very first update out
            warnings.filterwarnings("ignore", message=".*lr_scheduler.step.*")
            scheduler.step()
        yield float(loss.detach())


def watch(model: nn.Module, *, head: str) -> dict[str, Tensor]:
    """Return what a forward pass will fill: the largest attention score and logit."""
    seen: dict[str, Tensor] = {}

    def logits(module: nn.Module, args: Any, output: Tensor) -> None:
        seen["logits/largest"] = output.detach().abs().amax().float()

    def scores(module: nn.Module, args: Any, output: Tensor) -> None:
        width = output.shape[-1] // 3
        q, k, _ = output.detach().float().unflatten(-1, (3, 2, width // 2)).permute(2, 0, 3, 1, 4)
        largest = (q @ k.transpose(-2, -1)).abs().amax() / (width // 2) ** 0.5
        seen["attention/largest_logit"] = torch.maximum(largest, seen_scores(module))

    def seen_scores(module: nn.Module) -> Tensor:
        first = module is attention[0]
        return torch.zeros(()) if first else seen["attention/largest_logit"]

    attention = [m for n, m in model.named_modules() if n.endswith("qkv")]
    for each in attention:
        each.register_forward_hook(scores)
    model.get_submodule(head).register_forward_hook(logits)
    return seen
