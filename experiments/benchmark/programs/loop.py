"""The loop of a user who wrote it: an ordinary `train(run)`, with one place for a fault to sit."""

from __future__ import annotations

import warnings

from torch.optim.lr_scheduler import LambdaLR

from experiments.benchmark.faults.base import Fault, Moment
from experiments.benchmark.programs.base import BenchmarkTask, Recipe
from stabexp.state.random_streams import isolated_streams
from stabexp.tasks.settings import OptimizerSettings, ScheduleSettings
from stabexp.training.run import Run


def train(run: Run, *, task: BenchmarkTask, recipe: Recipe, fault: Fault) -> None:
    """Train as the recipe says; every update is the fault's to make."""
    model = task.model().to(run.device, run.number_format.weights)
    optimizer = OptimizerSettings.model_validate(dict(recipe.optimizer)).build(
        [p for p in model.parameters() if p.requires_grad]
    )
    ramp = ScheduleSettings(warmup_steps=recipe.warmup)
    scheduler = LambdaLR(
        optimizer, lambda step: fault.rate(step, factor=ramp.factor(step, recipe.steps))
    )
    scaler = run.scaler()
    with isolated_streams():
        data = task.dataset()
    steps = run.steps(data, model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler)
    for index, batch in enumerate(steps, start=1):
        with run.autocast():
            loss = task.loss(model, batch)
        run.log(loss)
        fault.update(
            Moment(
                run=run,
                model=model,
                optimizer=optimizer,
                scaler=scaler,
                loss=loss,
                index=index,
                accumulate=recipe.accumulate,
            )
        )
        if index % recipe.accumulate == 0:
            with warnings.catch_warnings():  # a scaler may leave the very first update out
                warnings.filterwarnings("ignore", message=".*lr_scheduler.step.*")
                scheduler.step()
