"""The loop behind `task:` in an experiment file: an ordinary user of `Run`.

Order of an update: loss ÷ accumulation, backward, unscale, clip (at the boundary), step, scale
update, schedule, zero (source row A11).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

from stabexp.state.random_streams import isolated_streams
from stabexp.tasks import Task
from stabexp.tasks.settings import OptimizerSettings, ScheduleSettings
from stabexp.training.run import Run


def yaml_loop(
    task: Task, optimizer_settings: OptimizerSettings, schedule: ScheduleSettings
) -> Callable[[Run], None]:
    """Return the training function of an experiment that names a task."""

    def train(run: Run) -> None:
        settings = run.settings
        assert settings.steps is not None
        model = task.model().to(run.device, run.number_format.weights)
        optimizer = optimizer_settings.build(model.parameters())
        scheduler = schedule.build(optimizer, settings.steps)
        scaler = run.scaler()
        with (
            isolated_streams()
        ):  # what a first import or download draws is not part of the training
            data = task.dataset()
        steps = run.steps(
            data,
            model=model,
            optimizer=optimizer,
            scheduler=scheduler,
            scaler=scaler,
            show=task.show,
        )
        for index, batch in enumerate(steps, start=1):
            with run.autocast():
                loss = task.loss(model, batch)
            run.log(loss)
            share = loss / settings.accumulate
            scaled = share if scaler is None else scaler.scale(share)
            scaled.backward()  # type: ignore[no-untyped-call]
            if index % settings.accumulate:
                continue
            if scaler is None:
                optimizer.step()
            else:
                scaler.step(optimizer)
                scaler.update()
            with warnings.catch_warnings():
                # The schedule follows the step index, also over updates that the scaler leaves out.
                warnings.filterwarnings("ignore", message=".*lr_scheduler.step.*")
                scheduler.step()
            optimizer.zero_grad(set_to_none=True)

    return train
