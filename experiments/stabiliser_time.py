"""What each stabiliser adds to a step of a GPT of 1.0 million parameters, in processor time.

Short trainings take turns in one process, in changing order, so that load on the machine meets all
of them. Processor time of the training thread is compared, for load changes it less than the clock.

    python -m experiments.stabiliser_time [rounds] [steps]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch

from stabexp.tasks import load_task
from stabexp.training import Run, RunSettings

GPT = {"width": 144, "layers": 4, "heads": 4, "context": 64}
STABILISERS: dict[str, Mapping[str, Any]] = {
    "none": {},
    "none, again": {},
    "adaptive_clip": {"adaptive_clip": {}},
    "adaptive_clip, quantile": {"adaptive_clip": {"kind": "quantile"}},
    "adaptive_clip, z_score": {"adaptive_clip": {"kind": "z_score"}},
    "layer_clip": {"layer_clip": {}},
    "loss_clamp": {"loss_clamp": {}},
    "skip_nonfinite": {"skip_nonfinite": {}},
    "safe_cross_entropy": {"safe_cross_entropy": {}},
    "keep_fp32": {"keep_fp32": {}},
    "logit_temperature": {"logit_temperature": {"module": "head"}},
    "freeze, half the blocks": {"freeze": {"modules": ["blocks.0", "blocks.1"]}},
    "activation_checkpointing": {"activation_checkpointing": {}},
}


def seconds_per_step(stabilisers: Mapping[str, Any], steps: int) -> float:
    """Return the median processor time of the steps of a training but the first two."""
    torch.manual_seed(0)
    task = load_task("gpt", GPT)
    model = task.model()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    settings = RunSettings(
        name="time", steps=steps + 2, threads=1, monitors={}, stabilisers=dict(stabilisers)
    )
    run = Run(settings)
    times = []
    for batch in run.steps(task.dataset(), model=model, optimizer=optimizer, batch_size=16):
        times.append(time.thread_time())
        optimizer.zero_grad()
        loss = task.loss(model, batch)
        run.log(loss)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return statistics.median(after - before for before, after in pairwise(times[2:]))


def main(rounds: int = 8, steps: int = 8) -> None:
    torch.set_num_threads(1)
    names = list(STABILISERS)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        first = turn * 5 % len(names)
        for name in names[first:] + names[:first]:
            seconds[name].append(seconds_per_step(STABILISERS[name], steps))
    print("| stabiliser | × a step without |\n|---|---:|")
    for name in names[1:]:
        ratios = [a / b for a, b in zip(seconds[name], seconds["none"], strict=True)]
        print(f"| {name} | {statistics.median(ratios):.3f} |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
