"""A draw's program: the family's own task or loop, with the fault inside.

`write` makes a folder that is all a bisect gets to see: `experiment.yaml` and a `program.py` that
holds nothing but the draw's token. What the token stands for is decided here, in code that stabexp
never imports by name.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from torch import Tensor, nn

from experiments.benchmark.draws import Draw, by_token
from experiments.benchmark.faults.base import Fault, Together
from experiments.benchmark.programs import Recipe, family, loop
from experiments.benchmark.programs.base import BenchmarkTask
from stabexp.tasks.base import Dataset
from stabexp.training.run import Run

PROGRAM = '''"""A training program."""

from experiments.benchmark.seeding import task_class, train_function


class Program(task_class("{token}")):
    """What is trained."""


train = train_function("{token}", Program)
'''

FIXED = "-fixed"
"""At the end of a token: the same program without its fault."""

WITHOUT = "-without-"
"""Before the number of the part that is left out of several faults."""


def task_class(token: str) -> type[BenchmarkTask]:
    """Return the family's task class with the fault of a draw inside."""
    draw, fault = _seeded(token)
    base = family(draw.family)

    class Seeded(base):  # type: ignore[valid-type,misc]
        """The family's task."""

        def dataset(self) -> Dataset:
            return fault.dataset(super().dataset())

        def model(self) -> nn.Module:
            return fault.model(super().model())

        def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
            return fault.loss(self, model, batch, plain=super().loss)

    return Seeded


def train_function(token: str, task: type[BenchmarkTask]) -> Callable[[Run], None]:
    """Return the training loop of a draw, as `train(run)`."""
    draw, fault = _seeded(token)
    recipe = fault.recipe(family(draw.family).healthy)

    def train(run: Run) -> None:
        loop.train(run, task=task(), recipe=recipe, fault=fault)

    return train


def _seeded(token: str) -> tuple[Draw, Fault]:
    name, _, left_out = token.partition(WITHOUT)
    draw = by_token(name.removesuffix(FIXED))
    fault = draw.fault(fixed=name.endswith(FIXED))
    if left_out:
        assert isinstance(fault, Together)
        fault = Together(*(p for i, p in enumerate(fault.parts) if i != int(left_out)))
    return draw, fault


def document(draw: Draw, *, token: str) -> dict[str, Any]:
    """Return the experiment of a draw as its YAML file will say it."""
    _, fault = _seeded(token)
    recipe = fault.recipe(family(draw.family).healthy)
    values: dict[str, Any] = {
        "name": f"program-{draw.token}",
        "seed": draw.seed,
        "steps": recipe.steps,
        "threads": 1,
        "schedule": {"name": "constant", "warmup_steps": recipe.warmup},
        "clip": recipe.clip,
        "precision": recipe.precision,
        "batch": {"size": recipe.batch, "accumulate": recipe.accumulate},
        "checkpoint": {"every": 25},
        "detectors": _detectors(recipe, watched=fault.watches_progress),
        "monitors": {},
    }
    if fault.needs_loop:
        values["train"] = {"name": "program.py:train"}
    else:
        values["task"] = {"name": "program.py:Program"}
        values["optimizer"] = dict(recipe.optimizer)
    return values | dict(recipe.options)


def _detectors(recipe: Recipe, *, watched: bool) -> dict[str, Any]:
    chosen: dict[str, Any] = {"non_finite": {}, "divergence": {}, "gradient_explosion": {}}
    if watched and recipe.expected is not None:
        chosen["plateau"] = {"expected": recipe.expected, "after": recipe.expected_by}
    return chosen


def write(draw: Draw, folder: Path, *, fixed: bool = False, without: int | None = None) -> Path:
    """Write a draw's program and experiment into `folder` and return the experiment file.

    Args:
        draw: Which.
        folder: Where; made if it is not there.
        fixed: With the one thing that is wrong set right.
        without: With this part of several faults left out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    token = draw.token + (FIXED if fixed else "" if without is None else f"{WITHOUT}{without}")
    (folder / "program.py").write_text(PROGRAM.format(token=token), "utf-8")
    file = folder / "experiment.yaml"
    file.write_text(yaml.safe_dump(document(draw, token=token), sort_keys=False), "utf-8")
    return file
