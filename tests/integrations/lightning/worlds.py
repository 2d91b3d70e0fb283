"""Small Lightning modules and data, with whatever can make a replay differ switched on."""

from __future__ import annotations

import random
from typing import Any

import lightning as L
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset, TensorDataset

THIRD_PARTY = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*",  # so small a data set needs none
    "ignore:.*treespec, LeafSpec.*:FutureWarning",  # Lightning's own use of torch
    "ignore:.*lr_scheduler.step.*before.*",  # a scaler that leaves out the first update
)
"""What Lightning and torch warn of in every training of this size."""

SAMPLES, FEATURES, BATCH = 100, 8, 8
"""13 batches in a pass, the last of them with 4 samples."""


def table(samples: int = SAMPLES) -> TensorDataset:
    """Return features (samples, 8) and the targets (samples, 1) to learn."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(samples, FEATURES, generator=generator)
    return TensorDataset(x, x[:, :1] * x[:, 1:2] + x[:, 2:3])


class Augmented(Dataset[tuple[Tensor, Tensor]]):
    """Draws from all three random streams whenever a sample is read."""

    def __init__(self) -> None:
        self.table = table()

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x, y = self.table[index]
        noise = torch.randn(FEATURES) + float(np.random.normal()) + random.gauss(0.0, 1.0)
        return x + 0.1 * noise, y


def loader(data: Any = None, **options: Any) -> DataLoader[Any]:
    return DataLoader(data or table(), **{"batch_size": BATCH, "shuffle": True, **options})


class Net(L.LightningModule):
    """Dropout, BatchNorm, AdamW and a schedule that moves with every step."""

    def __init__(self, *, lr: float = 0.02, optimizer: Any = torch.optim.AdamW) -> None:
        super().__init__()
        self.lr, self.kind = lr, optimizer
        self.net = nn.Sequential(
            nn.Linear(FEATURES, 16),
            nn.BatchNorm1d(16),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(16, 1),
        )

    def loss(self, batch: Any) -> Tensor:
        inputs, targets = batch
        return F.mse_loss(self.net(inputs), targets)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.loss(batch)

    def configure_optimizers(self) -> Any:
        optimizer = self.kind(self.parameters(), lr=self.lr)
        schedule = LambdaLR(optimizer, lambda step: 0.97**step)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


class Validated(Net):
    """Is validated, on data whose loader and whose step draw random numbers."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        inputs, targets = batch
        noisy = inputs + 0.01 * torch.randn_like(inputs)
        self.log("val_loss", F.mse_loss(self.net(noisy), targets))

    def val_dataloader(self) -> DataLoader[Any]:
        return DataLoader(table(24), batch_size=BATCH)


class Plateau(Validated):
    """The rate follows the loss on held-out data."""

    def configure_optimizers(self) -> Any:
        optimizer = self.kind(self.parameters(), lr=self.lr)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.9)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "monitor": "val_loss"},
        }


class OneCycle(Net):
    """Asks the trainer for the number of steps, which makes the loader before the optimizer."""

    def configure_optimizers(self) -> Any:
        optimizer = self.kind(self.parameters(), lr=self.lr)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.lr, total_steps=steps)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


class NoisyTransfer(Net):
    """Augments on the device, after the batch was moved there."""

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        inputs, targets = batch
        return inputs + 0.1 * torch.randn_like(inputs), targets


class DrawsFirst(Net):
    """Draws random numbers between the making of the loader's iterator and its first batch."""

    def on_train_start(self) -> None:
        self.noise = torch.randn(3)

    def on_train_epoch_start(self) -> None:
        self.noise = torch.randn(3)


class LeavesEarly(Net):
    """Leaves out the rest of a pass after its eighth batch."""

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        return -1 if batch_idx == 8 else None


def unless_broken(samples: list[Any]) -> Any:
    """Collate; None, which Lightning passes over, when sample 50 of the table is among them."""
    broken = table()[50][0]
    if any(torch.equal(inputs, broken) for inputs, _ in samples):
        return None
    return torch.utils.data.default_collate(samples)


class Remembers(Net):
    """Keeps a number of its own that weighs the loss, and saves it as Lightning asks."""

    level = 1.0

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        self.level = 0.9 * self.level + 0.1 * float(loss.detach())
        return {"loss": loss / self.level}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["level"] = self.level

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.level = checkpoint["level"]


class Manual(Net):
    """Steps by itself, after every second batch."""

    automatic_optimization = False
    every = 2

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer, schedule = self.optimizers(), self.lr_schedulers()
        self.manual_backward(self.loss(batch) / self.every)
        if (batch_idx + 1) % self.every == 0:
            self.clip_gradients(optimizer, gradient_clip_val=0.5)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()


class Gan(L.LightningModule):
    """Two networks, two optimizers, both stepped on every batch; one of them with a closure."""

    automatic_optimization = False

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, FEATURES))
        self.critic = nn.Sequential(
            nn.Linear(FEATURES, 16), nn.LeakyReLU(), nn.Dropout(0.2), nn.Linear(16, 1)
        )

    def training_step(self, batch: Any, batch_idx: int) -> None:
        real, _ = batch
        of_generator, of_critic = self.optimizers()

        self.toggle_optimizer(of_critic)
        of_critic.zero_grad()
        fake = self.generator(torch.randn(len(real), 4)).detach()
        logits = torch.cat([self.critic(real), self.critic(fake)])
        wanted = torch.cat([torch.ones(len(real), 1), torch.zeros(len(real), 1)])
        self.manual_backward(F.binary_cross_entropy_with_logits(logits, wanted))
        of_critic.step()
        self.untoggle_optimizer(of_critic)

        def closure() -> None:
            of_generator.zero_grad()
            judged = self.critic(self.generator(torch.randn(len(real), 4)))
            self.manual_backward(
                F.binary_cross_entropy_with_logits(judged, torch.ones(len(real), 1))
            )

        self.toggle_optimizer(of_generator)
        of_generator.step(closure=closure)
        self.untoggle_optimizer(of_generator)

    def configure_optimizers(self) -> Any:
        return (
            torch.optim.Adam(self.generator.parameters(), lr=1e-3),
            torch.optim.Adam(self.critic.parameters(), lr=2e-3),
        )


class Copier(L.LightningModule):
    """A small transformer that says what the previous token was."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(12, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(16, 12)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        (tokens,) = batch
        logits = self.head(self.block(self.embedding(tokens)))
        return F.cross_entropy(logits.flatten(0, 1), tokens.roll(1, 1).flatten())

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def tokens() -> TensorDataset:
    generator = torch.Generator().manual_seed(5)
    return TensorDataset(torch.randint(0, 12, (SAMPLES, 10), generator=generator))


class Data(L.LightningDataModule):
    """The table as a data module."""

    def train_dataloader(self) -> DataLoader[Any]:
        return loader()


def trainer(*callbacks: Any, **options: Any) -> L.Trainer:
    """Return a trainer that writes and prints nothing."""
    usual = {
        "max_epochs": 3,
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return L.Trainer(callbacks=list(callbacks), **{**usual, **options})
