"""An experiment's loop does the parts of an update in the right order (source row A11)."""

from __future__ import annotations

import pytest
import torch

from stabexp.config import Document, validate
from stabexp.experiment import Experiment, program
from stabexp.state.random_streams import seed_everything
from stabexp.tasks import load_task, read_batch
from stabexp.training import Run, execute
from stabexp.training.data import SampleOrder

LR, CLIP, ACCUMULATE, STEPS, SIZE = 0.1, 0.5, 3, 6, 8
ARGS = {"width": 16, "depth": 1}


def by_the_book(seed):
    """Divide, scale, backward; then unscale, clip, step, update, zero."""
    seed_everything(seed)
    task = load_task("mlp", ARGS)
    model = task.model()
    optimizer = torch.optim.SGD(model.parameters(), LR, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu")
    data = task.dataset()
    order = SampleOrder(len(data), seed=seed)
    losses = []
    for step in range(STEPS):
        total = 0.0
        for part in range(ACCUMULATE):
            start = (step * ACCUMULATE + part) * SIZE
            batch = read_batch(data, order.ids(start, SIZE))
            with torch.autocast("cpu", torch.float16):
                loss = task.loss(model, batch)
            scaler.scale(loss / ACCUMULATE).backward()
            total += loss.item() / ACCUMULATE
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        losses.append(total)
    return losses, model


def test_accumulation_scaling_and_clipping_are_the_loop_by_the_book(tmp_path):
    values = {
        "name": "order",
        "seed": 3,
        "task": {"name": "mlp", "args": ARGS},
        "optimizer": {"name": "sgd", "lr": LR, "momentum": 0.9},
        "precision": "fp16",
        "clip": CLIP,
        "steps": STEPS,
        "batch": {"size": SIZE, "accumulate": ACCUMULATE},
    }
    made = program(validate(Experiment, Document("test", values)), base=tmp_path)
    records = []
    run = Run(made.settings, on_step=records.append)
    execute(made, run)
    losses, model = by_the_book(3)
    assert [record.loss for record in records] == pytest.approx(losses, rel=1e-6)
    trained = run.parts.model.state_dict()
    assert all(torch.equal(trained[key], value) for key, value in model.state_dict().items())
    assert any(record.clip_coefficient < 1 for record in records)
