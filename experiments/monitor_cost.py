"""What each monitor and each preset costs, on a GPT of 1 and an MLP of 10 million parameters.

Presets take turns with a run without monitors, a bare loop, and the obvious way to measure (six
figures of each parameter's gradient, waited for one by one), a block of steps each in one process,
in changing order, so that load on the machine meets all of them. Monitors measure five times as
often as they do by themselves, so that each block has steps on which all, some and none are due;
what a step takes is the median over those of its kind, and the kinds are weighted as they come at
the monitors' own intervals. A single monitor measures on every step, and what it adds is divided by
its interval; one that only reads records is timed by itself, for it takes microseconds.

All figures are processor time of the training thread, which load changes least. "÷ none" is what
the monitors add to a run under stabexp; "÷ bare" is what the run costs more than the same loop
without stabexp: deterministic algorithms, step log and checkpoints included.

    python -m experiments.monitor_cost [--rounds 8] [--write]

--write puts the figures where `stabexp list monitors` finds them, and into docs/monitors.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from experiments.step_time import bare, seconds_per_step, watched
from stabexp.config import Component
from stabexp.monitors import MONITORS, Monitor
from stabexp.monitors.costs import PLACE
from stabexp.monitors.presets import PRESETS
from stabexp.records import StepRecord
from stabexp.state import seed_everything
from stabexp.tasks import Task, load_task

MODELS: Mapping[str, tuple[str, dict[str, Any], int]] = {
    "gpt": ("gpt", {"width": 144, "layers": 4, "heads": 4, "context": 64}, 16),
    "mlp": ("mlp", {"width": 2240, "depth": 3}, 64),
}
"""Name → task, its arguments, batch size."""

PAGE = Path(__file__).parents[1] / "docs" / "monitors.md"
BEGIN, END = "<!-- measured -->", "<!-- /measured -->"

OFTENER = 5
"""How many times as often as by themselves monitors measure here."""

BLOCK = 10
"""Steps: a multiple of every interval, 10, 20 or 50 by itself."""

KINDS = {0: 1 / 50, 2: 2 / 50, 4: 2 / 50, 1: 45 / 50}
"""Step of a block → share of such steps at the monitors' own intervals: all are due (0), those of
every 10 (2, 6), of every 20 too (4, 8), none (odd)."""

SHORT = 3
"""Steps of a block in which one monitor measures on each of them."""

Sides = Mapping[str, Callable[[Path], Generator[None, None, None]]]
"""Name → what trains one step for each `next`, given a folder of its own."""


def naive(model: nn.Module) -> None:
    """Measure the gradient of each parameter by itself, and wait for each number."""
    for p in model.parameters():
        g = p.grad
        assert g is not None
        for figure in (g.norm(), g.mean(), g.std(), g.max(), g.min(), (g == 0).float().mean()):
            figure.item()


def kind_of(step: int) -> int:
    """Return which of `KINDS` the step of a block is."""
    at = step % BLOCK
    return 1 if at % 2 else 0 if at == 0 else 2 if at % 4 else 4


def take_turns(sides: Sides, *, rounds: int, steps: int) -> dict[str, list[float]]:
    """Return the processor seconds of every step of each side, the first round left out."""
    with tempfile.TemporaryDirectory() as folder:
        made = {name: make(Path(folder) / str(at)) for at, (name, make) in enumerate(sides.items())}
        times: dict[str, list[float]] = {name: [] for name in made}
        for number in range(rounds + 1):
            for name in list(made) if number % 2 else list(made)[::-1]:
                strict = name not in {"bare", "naive"}
                for _ in range(steps):
                    _, processor = seconds_per_step(made[name], 1, deterministic=strict)
                    if number:
                        times[name].append(processor)
        for side in made.values():
            side.close()
    return times


def weighted(times: list[float]) -> float:
    """Return seconds per step: the median of each kind, weighted by how often it comes."""
    return sum(
        share * statistics.median(t for at, t in enumerate(times) if kind_of(at) == kind)
        for kind, share in KINDS.items()
    )


def presets(task: Task, batch: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return for each preset, none of them, bare and naive: ms per step, ÷ bare and ÷ none."""

    def under(names: Mapping[str, Any]) -> Callable[[Path], Generator[None, None, None]]:
        monitors = {name: {"every": max(1, interval(name) // OFTENER)} for name in names}
        return lambda folder: watched(task, batch, folder, monitors=monitors)

    sides: dict[str, Callable[[Path], Generator[None, None, None]]] = {
        "bare": lambda folder: bare(task, batch),
        "naive": lambda folder: bare(task, batch, naive),
        "none": under({}),
        **{name: under(monitors) for name, monitors in PRESETS.items()},
    }
    times = take_turns(sides, rounds=rounds, steps=BLOCK)
    seconds = {
        name: weighted(each) if name in PRESETS else statistics.median(each)
        for name, each in times.items()
    }
    table = {}
    for name, each in seconds.items():
        table[name] = {
            "ms": round(each * 1e3, 2),
            "over_bare": round(each / seconds["bare"], 3),
            "over_none": round(each / seconds["none"], 3),
        }
        print(f"  {name:10} {table[name]}", flush=True)
    return table


def single(task: Task, batch: int, rounds: int, *, step: float) -> dict[str, float]:
    """Return for each monitor what it adds at its own interval, beside a run without monitors.

    `step` is what a step of that run takes, in seconds.
    """
    costs = {}
    for name, kind in MONITORS.items():
        if name == "ranks":  # of one process it does nothing
            continue
        if "recorded" in vars(kind):
            costs[name] = round(reading(kind()) / step / interval(name), 5)
            print(f"  {name:14} +{costs[name]:.3%} at every {interval(name)}", flush=True)
            continue
        often = {name: {"every": 1}}
        sides: Sides = {
            "none": lambda folder: watched(task, batch, folder, monitors={}),
            name: lambda folder, often=often: watched(task, batch, folder, monitors=often),  # type: ignore[misc]
        }
        times = take_turns(sides, rounds=rounds, steps=SHORT)
        more = statistics.median(times[name]) / statistics.median(times["none"]) - 1
        costs[name] = round(max(0.0, more) / interval(name), 4)
        print(f"  {name:14} +{costs[name]:.2%} at every {interval(name)}", flush=True)
    return costs


def reading(monitor: Component) -> float:
    """Return the processor seconds in which a monitor reads one record and those before it."""
    assert isinstance(monitor, Monitor)
    records = [
        StepRecord(
            step=at,
            time=0.0,
            loss=1.0,
            lr=0.1,
            grad_norm=1.0,
            batch_size=16,
            seconds=0.1,
            loss_scale=1024.0,
        )
        for at in range(200)
    ]
    times = []
    for _ in range(300):
        started = time.thread_time()
        monitor.recorded(records[-1], records[:-1])
        times.append(time.thread_time() - started)
    return statistics.median(times)


def interval(name: str) -> int:
    """Return the steps between two measurements of a monitor by itself."""
    return int(MONITORS[name].model_fields["every"].default)


def machine() -> str:
    """Return what the figures were measured on, in words."""
    names = [
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        if line.startswith("model name")
    ]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name}, one thread of {os.cpu_count()}, torch {torch.__version__.split('+')[0]}"


def table(measured: Mapping[str, Any]) -> str:
    """Return the presets' figures as a table in Markdown."""
    models = list(measured["models"])
    rows = [
        ["", *(measured["models"][model] for model in models)],
        ["---"] * (1 + len(models)),
    ]
    wanted = [
        *((f"`{name}` ÷ stabexp without monitors", name, "over_none") for name in PRESETS),
        ("stabexp without monitors ÷ bare loop", "none", "over_bare"),
        *((f"`{name}` ÷ bare loop", name, "over_bare") for name in PRESETS),
        (
            "six figures per gradient, waited for one by one ÷ bare loop",
            "naive",
            "over_bare",
        ),
    ]
    for words, side, kind in wanted:
        figures = (measured["presets"][model][side][kind] for model in models)
        rows.append([words, *(f"{figure:.3f}" for figure in figures)])
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([f"Processor time of the training thread; {measured['machine']}:", "", *lines])


def main() -> None:
    """Measure, print, and with --write keep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    measured: dict[str, Any] = {"machine": machine(), "models": {}, "presets": {}, "monitors": {}}
    for name, (kind, arguments, batch) in MODELS.items():
        seed_everything(0)
        task = load_task(kind, arguments)
        count = sum(p.numel() for p in task.model().parameters())
        measured["models"][name] = f"{kind} of {count / 1e6:.1f} million parameters, batch {batch}"
        print(f"{measured['models'][name]}, load {os.getloadavg()[0]:.1f}", flush=True)
        measured["presets"][name] = presets(task, batch, asked.rounds)
        measured["monitors"][name] = single(
            task, batch, asked.rounds, step=measured["presets"][name]["none"]["ms"] / 1e3
        )
    if asked.write:
        PLACE.write_text(json.dumps(measured, indent=1) + "\n", "utf-8")
        before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        text = f"{before}{BEGIN}\n{table(measured)}\n{END}{after}"
        PAGE.write_text(text, "utf-8")
        print(f"written to {PLACE} and {PAGE}")


if __name__ == "__main__":
    main()
