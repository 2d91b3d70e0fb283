"""A loop written for Hugging Face's Accelerate that diverges by one seeded fault.

The network, the data and the faults are those of the plain loop; batches, updates and clipping are
Accelerate's. Accelerate refuses float16 on a CPU, so there the loop enters autocast itself.
"""

from __future__ import annotations

import torch
from accelerate import Accelerator
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader

from experiments.trainers.plain_loop import (
    ACCUMULATE,
    BATCH,
    CLIP,
    VERDICTS,
    Fault,
    Network,
    ramp,
    rate,
    samples,
    weighted_loss,
)
from stabexp import Run

__all__ = ["VERDICTS", "train"]


def train(run: Run, fault: Fault | None = None, epochs: int = 6) -> None:
    """Train on digits, with one fault or none."""
    from stabexp.integrations.accelerate import accelerated

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATE)
    model = Network(fault)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate(fault), momentum=0.9)
    loader = DataLoader(samples(fault), batch_size=BATCH, shuffle=True)
    model, optimizer, loader, scheduler = accelerator.prepare(
        model, optimizer, loader, LambdaLR(optimizer, ramp)
    )
    steps = run.steps(
        loader,
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        epochs=epochs,
        extra=accelerated(accelerator),
    )
    for pixels, labels, weights in steps:
        with accelerator.accumulate(model):
            with torch.autocast("cpu", dtype=torch.float16, enabled=fault == "fp16"):
                loss = weighted_loss(model(pixels), labels, weights)
            run.log(loss)
            accelerator.backward(loss)
            if accelerator.sync_gradients and fault in (None, "fp16"):
                accelerator.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
