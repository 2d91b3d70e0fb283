"""A watched training is the training: no bit differs from a plain PyTorch loop."""

from __future__ import annotations

import contextlib

import pytest
import torch

from stabexp.state import CheckpointStore, capture, first_difference, seed_everything
from stabexp.state.fingerprint import set_deterministic
from stabexp.tasks import load_task, read_batch
from stabexp.training import Program, Run, RunSettings, execute
from stabexp.training.data import SampleOrder

STEPS = 8
MONITORS = {"layers": {"every": 1}, "half_range": {"every": 1}}
TASKS = {
    "gpt": {"width": 16, "heads": 2, "context": 16, "stride": 2000, "dropout": 0.1},
    "cnn": {"width": 4, "norm": "batch", "dropout": 0.1},
}


def plain(task, *, half, scale, clip, accumulate, size):
    """Train as people do without stabexp; return losses, norms before clipping, and the state."""
    seed_everything(3)
    model, data = task.model(), task.dataset()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, enabled=scale is not None)
    order, position = SampleOrder(len(data), seed=3), 0
    losses, norms = [], []
    for _ in range(STEPS):
        parts = []
        for _ in range(accumulate):
            batch = read_batch(data, order.ids(position, size))
            position += size
            with torch.autocast("cpu", half) if half else contextlib.nullcontext():
                loss = task.loss(model, batch)
            parts.append(loss.detach())
            scaler.scale(loss / accumulate).backward()
        scaler.unscale_(optimizer)
        limit = float("inf") if clip is None else clip
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        optimizer.zero_grad()
        losses.append(torch.stack(parts).mean().item())
        norms.append(norm.item())
    return losses, norms, capture({"model": model, "optimizer": optimizer})


def with_run(task, tmp_path, *, half, scale, clip, accumulate, size):
    """Train with everything on: monitors, detectors, checkpoints."""
    kept = {}

    def train(run):
        model = task.model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale) if scale else None
        kept.update(model=model, optimizer=optimizer)
        steps = run.steps(
            task.dataset(), model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler
        )
        for index, batch in enumerate(steps, start=1):
            with torch.autocast("cpu", half) if half else contextlib.nullcontext():
                loss = task.loss(model, batch)
            run.log(loss)
            share = loss / accumulate
            (scaler.scale(share) if scaler else share).backward()
            if index % accumulate == 0:
                if scaler:
                    scaler.step(optimizer)
                    scaler.update()
                else:
                    optimizer.step()
                scheduler.step()
                optimizer.zero_grad()

    settings = RunSettings(
        name="watched",
        seed=3,
        steps=STEPS,
        clip_norm=clip,
        batch_size=size,
        accumulate=accumulate,
        checkpoint_every=3,
        monitors=MONITORS,
    )
    records = []
    with CheckpointStore(tmp_path / "checkpoints") as store:
        run = Run(settings, keep_saving=True, checkpoints=store, on_step=records.append)
        execute(Program(settings=settings, train=train), run)
    return records, capture(kept)


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="fp32"),
        pytest.param({"clip": 0.5}, id="clipped"),
        pytest.param({"clip": 0.5, "accumulate": 3}, id="clipped, accumulated"),
        pytest.param({"half": torch.bfloat16}, id="bf16"),
        pytest.param({"half": torch.float16, "scale": 2.0**10, "clip": 0.5}, id="fp16, scaled"),
        pytest.param(
            {"half": torch.float16, "scale": 2.0**24, "clip": 0.5, "accumulate": 3},
            id="fp16, scale overflows at first",
        ),
    ],
)
def test_no_bit_of_losses_and_parameters_differs_from_a_plain_loop(tmp_path, name, settings):
    task = load_task(name, TASKS[name])
    options = {"half": None, "scale": None, "clip": None, "accumulate": 1, "size": 16, **settings}
    records, watched = with_run(task, tmp_path, **options)
    set_deterministic(True)
    losses, norms, bare = plain(task, **options)
    assert [record.loss for record in records] == losses
    finite = [norm for norm in norms if norm < float("inf")]
    assert [r.grad_norm for r in records if r.grad_norm < float("inf")] == finite
    assert (
        first_difference(
            watched.__class__(objects=watched.objects, streams={}),
            bare.__class__(objects=bare.objects, streams={}),
        )
        is None
    )
    if options["scale"] == 2.0**24:
        assert any(record.skipped for record in records)
    assert all(record.layers for record in records)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_monitors_and_checkpoints_change_no_record_and_no_state(
    make_program, train, tmp_path, precision
):
    values = {
        "task": {"name": "gpt", "args": TASKS["gpt"]},
        "optimizer": {"lr": 1e-3},
        "clip": 0.5,
        "precision": precision,
        "batch": {"size": 8, "accumulate": 2},
        "checkpoint": {"every": 3},
    }
    bare, plain_run = train(make_program(**values, monitors={}))
    with CheckpointStore(tmp_path / "checkpoints") as store:
        watched, run = train(
            make_program(**values, monitors=MONITORS), keep_saving=True, checkpoints=store
        )
    assert [r.digest for r in bare] == [r.digest for r in watched]
    assert [r.loss for r in bare] == [r.loss for r in watched]
    assert first_difference(plain_run.snapshot(), run.snapshot()) is None
