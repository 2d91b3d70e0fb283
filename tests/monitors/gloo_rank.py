"""One of two processes that train in parallel: `python gloo_rank.py RANK FILE FAULT…`.

Prints, for each fault and step, how many processes differ from the first one, and the alarms.
"""

from __future__ import annotations

import contextlib
import json
import sys

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

from stabexp.monitors.alarms import AlarmWatch
from stabexp.training import Run, RunSettings

NAMES = ("ranks/gradients_differ", "ranks/weights_differ")


def train(rank: int, fault: str) -> dict[str, object]:
    torch.manual_seed(0)
    plain = nn.Linear(4, 1)
    model = DistributedDataParallel(plain)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    records, watch = [], AlarmWatch()
    settings = RunSettings(name="rank", steps=4, batch_size=4, monitors={"ranks": {"every": 1}})
    run = Run(settings, on_step=records.append)
    torch.manual_seed(rank)
    data = TensorDataset(torch.randn(64, 4))
    for step, (x,) in enumerate(run.steps(data, model=model, optimizer=optimizer)):
        alone = fault == "not averaged once" and step == 2
        with model.no_sync() if alone else contextlib.nullcontext():
            loss = model(x).pow(2).mean()
            run.log(loss)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if fault == "weights of one changed" and step == 1 and rank == 1:
            with torch.no_grad():
                plain.weight[0, 2] += 1e-3
    return {
        "seen": [[record.metrics[name] for name in NAMES] for record in records],
        "alarms": [alarm.message for record in records for alarm in watch.see(record)],
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    here = int(sys.argv[1])
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=here, world_size=2)
    print(json.dumps({name: train(here, name) for name in sys.argv[3:]}))
    dist.destroy_process_group()
