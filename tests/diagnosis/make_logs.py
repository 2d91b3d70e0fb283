"""Real logs, each written by the framework that writes such logs, of trainings of a second.

All train a linear model on the same made-up data. At the rate 0.05 it learns, at 1.5 the loss grows
by a factor each step; `poison` makes the loss NaN from that step on, `blink` adds a NaN to the loss
of that step alone, of which the gradient knows nothing.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import torch
from torch import nn

GOOD, BAD = 0.05, 1.5
STEPS = 60
FEATURES = 8


def data(count: int = 512) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and the targets that a linear model can learn, with some noise."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(count, FEATURES, generator=generator)
    return x, x.sum(1, keepdim=True) + 0.1 * torch.randn(count, 1, generator=generator)


def turning(step: int, *, turn: int) -> float:
    """Return the rate of a run that learns at first and diverges from step `turn` on."""
    return GOOD if step < turn else BAD


class Regression(nn.Module):
    """A linear model as the Trainer wants it: the loss is in the output."""

    def __init__(self, *, poison: int | None = None, blink: int | None = None) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.linear = nn.Linear(FEATURES, 1)
        self.poison, self.blink = poison, blink
        self.calls = 0

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        out = self.linear(x)
        loss = nn.functional.mse_loss(out, labels)
        if self.training:
            if self.poison is not None and self.calls >= self.poison:
                loss = loss * float("nan")
            if self.calls == self.blink:
                loss = loss + float("nan")
            self.calls += 1
        return {"loss": loss, "logits": out}


class Rows(torch.utils.data.Dataset[Any]):
    """The data as dictionaries."""

    def __init__(self) -> None:
        self.x, self.y = data()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": self.x[index], "labels": self.y[index]}


def hugging_face(
    folder: Path,
    *,
    turn: int | None = None,
    poison: int | None = None,
    blink: int | None = None,
    every: int = 1,
    filtered: bool = True,
    report_to: tuple[str, ...] = (),
    save_steps: int = 0,
) -> Path:
    """Train with the Hugging Face Trainer; return the folder it left its state in."""
    from transformers import Trainer, TrainingArguments
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    model = Regression(poison=poison, blink=blink)
    optimizer = torch.optim.SGD(model.parameters(), lr=GOOD)
    rates = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: turning(step, turn=STEPS if turn is None else turn) / GOOD
    )
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=16,
        logging_steps=every,
        logging_nan_inf_filter=filtered,
        max_grad_norm=0.0,
        report_to=list(report_to) or "none",
        save_strategy="steps" if save_steps else "no",
        save_steps=save_steps or 500,
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = Trainer(
        model=model, args=arguments, train_dataset=Rows(), optimizers=(optimizer, rates)
    )
    trainer.train()
    trainer.save_state()
    return folder


def lightning(folder: Path, *, turn: int | None = None, every: int = 1) -> Path:
    """Train with Lightning and its CSVLogger; return the folder with metrics.csv."""
    import lightning as light
    from lightning.pytorch.callbacks import LearningRateMonitor
    from lightning.pytorch.loggers import CSVLogger
    from lightning.pytorch.utilities import grad_norm

    class Module(light.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Regression()

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            loss = self.net(batch["x"], batch["labels"])["loss"]
            self.log("train_loss", loss, on_step=True, on_epoch=True)
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("val_loss", self.net(batch["x"], batch["labels"])["loss"])

        def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
            self.log_dict(grad_norm(self, norm_type=2))

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=GOOD)
            rates = torch.optim.lr_scheduler.LambdaLR(
                optimizer, lambda step: turning(step, turn=STEPS if turn is None else turn) / GOOD
            )
            return {
                "optimizer": optimizer,
                "lr_scheduler": {"scheduler": rates, "interval": "step"},
            }

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    light.seed_everything(1, verbose=False)
    loader = torch.utils.data.DataLoader(Rows(), batch_size=16, shuffle=True)
    logger = CSVLogger(folder, name=None, version="")
    light.Trainer(
        max_steps=STEPS,
        logger=logger,
        log_every_n_steps=every,
        callbacks=[LearningRateMonitor("step")],
        accelerator="cpu",
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    ).fit(Module(), loader, loader)
    return folder


def plain(*, turn: int | None = None, poison: int | None = None) -> list[dict[str, float]]:
    """Train in a plain loop; return step, loss, grad_norm and lr of each step."""
    model = Regression(poison=poison)
    optimizer = torch.optim.SGD(model.parameters(), lr=GOOD)
    x, y = data()
    rows = []
    for step in range(STEPS):
        rate = turning(step, turn=STEPS if turn is None else turn)
        optimizer.param_groups[0]["lr"] = rate
        batch = slice(16 * step % 512, 16 * step % 512 + 16)
        loss = model(x[batch], y[batch])["loss"]
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])
        optimizer.step()
        rows.append({"step": step, "loss": loss.item(), "grad_norm": norm.item(), "lr": rate})
    return rows


def json_lines(file: Path, rows: list[dict[str, float]]) -> Path:
    """Write rows as a script would: one json.dumps a line."""
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


def tensorboard(folder: Path, rows: list[dict[str, float]], *, start: int = 0) -> Path:
    """Write rows with torch's SummaryWriter; return its folder."""
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as writer:
        for row in rows[start:]:
            writer.add_scalar("Loss/train", row["loss"], row["step"])
            writer.add_scalar("Loss/val", 1.0, row["step"])
            writer.add_scalar("grad_norm", row["grad_norm"], row["step"])
            writer.add_scalar("lr", row["lr"], row["step"])
    return folder
