"""A replay is the same training: for each of many configurations, every bit of every later step.

N steps straight are compared with k steps, save, a *new process*, N - k steps: all that was
recorded of each step but its time, and at the end a hash over all state. To print the whole grid:

    python experiments/exactness.py
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader

from stabexp.config import Document, validate
from stabexp.experiment import Experiment, program
from stabexp.records import StepRecord, to_json
from stabexp.state import CheckpointStore, state_hash
from stabexp.tasks import load_task
from stabexp.training import Fork, Program, Run, execute

STEPS = 12
"""Steps of each run in all."""

Section = dict[str, Any]
_SMALL: Section = {"width": 16, "heads": 2, "context": 16, "stride": 2000}

GPT: Section = {"name": "gpt", "args": {**_SMALL, "dropout": 0.2}}
POST_NORM: Section = {"name": "gpt", "args": {**_SMALL, "norm": "post"}}
LSTM = {"name": "lstm", "args": {"width": 16, "layers": 2, "dropout": 0.3, "context": 16}}
CNN = {"name": "cnn", "args": {"width": 4, "norm": "batch", "dropout": 0.1}}
MLP = {"name": "mlp", "args": {"norm": "batch", "dropout": 0.2}}
TOWERS = {"name": "two_tower"}

ADAMW = {"name": "adamw", "lr": 1e-3, "weight_decay": 0.1}
SGD = {"name": "sgd", "lr": 0.05, "momentum": 0.9}
COSINE = {"name": "cosine", "warmup_steps": 4}
LINEAR = {"name": "linear", "warmup_steps": 3}
CYCLE = {"name": "one_cycle"}
LARGE = {"size": 256, "accumulate": 3}
"""768 of the 1,797 digits in each step: a pass ends in the middle of a batch every third step."""


WORKERS: Section = {"size": 64, "accumulate": 3, "workers": 2}
"""192 digits in each step: the second pass begins in the tenth step."""


def _case(at: int, task: Section | None = None, **settings: Any) -> tuple[int, Section]:
    if task is not None:
        settings = {"task": task, "optimizer": ADAMW, **settings}
    return at, {"name": "exactness", "steps": STEPS, "seed": 7, **settings}


def _own(function: str, **args: Any) -> Section:
    return {"name": f"{Path(__file__).resolve()}:{function}", "args": args}


CASES: dict[str, tuple[int, Section]] = {
    "gpt fp32 from the start": _case(0, GPT),
    "gpt fp32 dropout cosine": _case(5, GPT, schedule=COSINE),
    "gpt fp32 clip accumulate": _case(5, GPT, clip=0.5, batch={"accumulate": 3}),
    "gpt fp32 workers": _case(4, GPT, batch={"workers": 2}),
    "gpt bf16 one cycle": _case(7, GPT, precision="bf16", schedule=CYCLE),
    "gpt fp16 scaler": _case(5, GPT, precision="fp16", clip=1.0),
    "gpt pure bf16": _case(6, GPT, precision="pure_bf16"),
    "gpt fp64 post-norm": _case(3, POST_NORM, precision="fp64"),
    "gpt fused": _case(5, GPT, optimizer={**ADAMW, "fused": True}, schedule=LINEAR),
    "gpt foreach": _case(5, GPT, optimizer={**ADAMW, "foreach": True}, schedule=LINEAR),
    "gpt shuffled otherwise": _case(5, GPT, interventions={"shuffle": 3}),
    "gpt with every intervention": _case(
        5,
        GPT,
        schedule=COSINE,
        interventions={
            "learning_rate": 0.5,
            "warmup": 6,
            "clip_norm": 0.3,
            "precision": "bf16",
            "batch_size": 2,
        },
    ),
    "lstm fp32 sgd": _case(5, LSTM, optimizer=SGD),
    "lstm bf16 adam": _case(6, LSTM, optimizer={"name": "adam"}, precision="bf16"),
    "lstm fp16 scaler workers": _case(4, LSTM, precision="fp16", batch={"workers": 2}),
    "cnn fp32 first pass": _case(5, CNN, optimizer=SGD, schedule=COSINE),
    "cnn fp32 later pass": _case(8, CNN, batch=LARGE),
    "cnn bf16 accumulate workers": _case(7, CNN, precision="bf16", batch=WORKERS),
    "cnn fp16 scaler accumulate": _case(
        7, CNN, precision="fp16", batch={"size": 16, "accumulate": 3}, schedule=COSINE
    ),
    "cnn fp64 fused sgd": _case(5, CNN, optimizer={**SGD, "fused": True}, precision="fp64"),
    "cnn fp32 last step": _case(11, CNN, schedule=LINEAR),
    "mlp fp32 nesterov": _case(5, MLP, optimizer={**SGD, "nesterov": True}),
    "mlp fp16 without scaler": _case(5, MLP, precision="fp16_unscaled", optimizer=SGD),
    "mlp pure fp16": _case(5, MLP, precision="pure_fp16", optimizer=SGD),
    "mlp fp32 batch ends a pass": _case(2, MLP, batch={"size": 599, "accumulate": 3}),
    "mlp pure bf16 later pass workers": _case(
        10, MLP, precision="pure_bf16", batch=WORKERS, optimizer=SGD
    ),
    "two_tower fp32": _case(5, TOWERS, clip=1.0, schedule=COSINE),
    "two_tower bf16 later pass": _case(8, TOWERS, precision="bf16", batch=LARGE),
    "two_tower fp64 from the start": _case(0, TOWERS, precision="fp64", schedule=LINEAR),
    "own loop, average kept, not shuffled": _case(5, train=_own("averaged"), batch={"workers": 2}),
    "own loop, scale grows until it overflows": _case(7, train=_own("overflowing")),
    "own loop, gradients never cleared": _case(6, train=_own("piling_up")),
    "own loop, random augmentation": _case(5, train=_own("augmented")),
    "own loop, random augmentation in workers": _case(5, train=_own("augmented", workers=2)),
}
"""Name → the step to fork at, and the experiment."""


def _mlp() -> tuple[nn.Module, Any, Any]:
    task = load_task("mlp", {"norm": "batch", "dropout": 0.2, "width": 16})
    return task.model(), task.dataset(), task


def averaged(run: Run) -> None:
    """Keep a moving average of the weights, on data in its own order, with a loader."""
    model, data, task = _mlp()
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))  # type: ignore[no-untyped-call]
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.5)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=3)
    loader: DataLoader[Any] = DataLoader(data, batch_size=50, shuffle=False, num_workers=0)
    extra = {"average": average}
    for batch in run.steps(
        loader, model=model, optimizer=optimizer, scheduler=scheduler, extra=extra
    ):
        optimizer.zero_grad()
        loss = task.loss(model, batch)
        run.log(
            loss,
            distance=sum(
                (p - q).abs().sum()
                for p, q in zip(model.parameters(), average.module.parameters(), strict=True)
            ),
        )
        loss.backward()
        optimizer.step()
        scheduler.step()
        average.update_parameters(model)


def overflowing(run: Run) -> None:
    """Scale the loss by a factor that doubles every other step until the gradients overflow."""
    model, data, task = _mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**17, growth_interval=2)
    for batch in run.steps(
        data, model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler
    ):
        with torch.autocast("cpu", torch.float16):
            loss = task.loss(model, batch)
        run.log(loss)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if not run.step % 2:
            scheduler.step()


def piling_up(run: Run) -> None:
    """Forget to clear the gradients: a common fault, which must be replayed like any other."""
    model, data, task = _mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for batch in run.steps(data, model=model, optimizer=optimizer):
        loss = task.loss(model, batch)
        run.log(loss)
        loss.backward()
        optimizer.step()


class Noisy:
    """Digits with fresh noise each time one is read."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        image, label = self.data[index]
        return image + 0.1 * torch.randn(image.shape), label


def augmented(run: Run, workers: int = 0) -> None:
    """Draw random numbers while a sample is read, in the training process or in workers."""
    model, data, task = _mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader: DataLoader[Any] = DataLoader(
        Noisy(data),  # type: ignore[arg-type]
        batch_size=40,
        shuffle=True,
        num_workers=workers,
    )
    for batch in run.steps(loader, model=model, optimizer=optimizer):
        loss = task.loss(model, batch)
        run.log(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def case_program(name: str) -> Program:
    """Return what a configuration trains."""
    experiment = validate(Experiment, Document(name, CASES[name][1]))
    made: Program = program(experiment, base=Path())
    return made


def straight(name: str, directory: Path) -> dict[str, Any]:
    """Run all steps, saving the state of step 0 and of the fork step in `directory`."""
    made, at = case_program(name), CASES[name][0]
    settings = dataclasses.replace(made.settings, checkpoint_every=at or STEPS)
    with CheckpointStore(directory, keep=STEPS) as store:
        return _outcome(
            dataclasses.replace(made, settings=settings), keep_saving=True, checkpoints=store
        )


def forked(name: str, directory: Path) -> dict[str, Any]:
    """Run the steps after the fork, from the state in `directory`."""
    return _outcome(case_program(name), fork=Fork(checkpoints=directory, step=CASES[name][0]))


def _outcome(made: Program, **options: Any) -> dict[str, Any]:
    records: list[StepRecord] = []
    run = Run(made.settings, on_step=records.append, **options)
    execute(made, run)
    return {"records": [comparable(r) for r in records], "state": state_hash(run.snapshot())}


def comparable(record: StepRecord) -> dict[str, Any]:
    """Return all that a record says, but how long the step took; NaN becomes text."""
    values: dict[str, Any] = json.loads(json.dumps(to_json(record)))
    del values["time"], values["seconds"]
    return values


def in_new_process(directories: dict[str, Path]) -> dict[str, dict[str, Any]]:
    """Return the outcome of each configuration's fork, run in one process of their own."""
    names = {name: str(path) for name, path in directories.items()}
    done = subprocess.run(
        [sys.executable, __file__, "forks", json.dumps(names)],
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def difference(whole: dict[str, Any], part: dict[str, Any]) -> str:
    """Return the first step and the fields that differ, empty when nothing does."""
    steps = {record["step"]: record for record in whole["records"]}
    for record in part["records"]:
        other = steps[record["step"]]
        fields = [key for key in record if record[key] != other[key]]
        if fields:
            return f"step {record['step']}: {', '.join(fields)}"
    if part["records"][-1]["step"] != whole["records"][-1]["step"]:
        return f"the fork ended at step {part['records'][-1]['step']}"
    return "" if whole["state"] == part["state"] else "the state after the last step"


def main(arguments: Iterable[str]) -> int:
    """Print the grid, or as a new process the forks' outcomes."""
    torch.set_num_threads(1)
    match list(arguments):
        case ["forks", names]:
            directories = json.loads(names)
            print(json.dumps({name: forked(name, Path(directories[name])) for name in directories}))
            return 0
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        directories = {name: Path(folder) / str(i) for i, name in enumerate(CASES)}
        whole = {name: straight(name, path) for name, path in directories.items()}
        part = in_new_process(directories)
    found = {name: difference(whole[name], part[name]) for name in CASES}
    for name, (at, _) in CASES.items():
        print(f"{name:45} fork at {at:2}  {found[name] or 'equal, every bit'}")
    equal = sum(not text for text in found.values())
    print(f"{equal} of {len(CASES)} equal, {time.perf_counter() - started:.0f} s")
    return 0 if equal == len(CASES) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
