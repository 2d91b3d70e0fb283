"""A linear model on noisy points: the smallest thing that Trainer trains."""

from __future__ import annotations

import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

from stabexp.integrations.transformers import StabexpCallback


class Noisy(Dataset):
    """Points whose reading draws from all three streams: random augmentation."""

    def __len__(self):
        return 50

    def __getitem__(self, index):
        x = torch.sin(torch.arange(6.0) + index) + 0.1 * torch.randn(6)
        x = x * random.uniform(0.9, 1.1) + np.random.normal(0, 0.1)
        return {"x": x.float(), "labels": x.sum(0, keepdim=True).float()}


class Line(nn.Module):
    """A linear model as Trainer wants it."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 1)
        self.drop = nn.Dropout(0.2)

    def forward(self, x, labels):
        found = self.linear(self.drop(x))
        return {"loss": (found - labels).square().mean(), "logits": found}


class Counting(Line):
    """Divides its loss by the items of the whole update, as language models do."""

    accepts_loss_kwargs = True

    def forward(self, x, labels, num_items_in_batch=None):
        found = self.linear(x)
        if num_items_in_batch is None:
            return {"loss": (found - labels).square().mean(), "logits": found}
        loss = (found - labels).square().sum() / num_items_in_batch
        return {"loss": loss, "logits": found}


def line(run, *, kind=Trainer, callbacks=(), model=Line, data=None, **others):
    """Train a `Line` on noisy points, 7 updates in a pass."""
    given = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 18}
    given |= {"use_cpu": True, "disable_tqdm": True, "report_to": [], "save_strategy": "no"}
    made = kind(
        model=model(),
        args=TrainingArguments("out", **(given | others)),
        train_dataset=data or Noisy(),
        eval_dataset=Noisy(),
        callbacks=[*callbacks, StabexpCallback(run)],
    )
    made.train()
    return made
