"""A trained GPT-2 is tuned: whole, with a new head, or with LoRA; clean or with a mistake.

The trained model is a tiny one with random weights that was saved to a folder and loaded from it:
what matters here is how it is tuned.
"""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run
from stabexp.tasks.text import VOCABULARY, tokens

CONTEXT = 32


def trained_model(*, classes: int = 0) -> Any:
    """Return GPT-2 loaded from a folder, for text or with a new classifier."""
    from transformers import (
        GPT2Config,
        GPT2ForSequenceClassification,
        GPT2LMHeadModel,
    )

    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=CONTEXT,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    with tempfile.TemporaryDirectory() as folder:
        GPT2LMHeadModel(config).save_pretrained(folder)
        if classes:
            made: Any = GPT2ForSequenceClassification.from_pretrained(folder, num_labels=classes)
        else:
            made = GPT2LMHeadModel.from_pretrained(folder)
    return made


def with_adapters(model: Any, mistake: str) -> Any:
    """Return the model with LoRA adapters."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=4,
        lora_alpha=64 if mistake == "alpha times sixteen" else 8,
        lora_dropout=0.6 if mistake == "dropout of 0.6" else 0.1,
        target_modules=["c_attn"],
        fan_in_fan_out=True,
    )
    made = get_peft_model(model, config)
    for name, parameter in made.named_parameters():
        if mistake == "base trained too":
            parameter.requires_grad_(True)
        if mistake == "both ends zero" and "lora_A" in name:
            nn.init.zeros_(parameter)
        if mistake == "adapter not a number" and "lora_A" in name:
            nn.init.constant_(parameter, float("nan"))
    return made


def train(run: Run, *, mistake: str = "", lora: bool = False, epochs: int = 2) -> None:
    """Tune on source text."""
    text = tokens()[: 600 * CONTEXT].view(600, CONTEXT).long()
    model = trained_model()
    if lora:
        model = with_adapters(model, mistake)
    if mistake != "evaluation mode of from_pretrained":
        model.train()
    rate = 1e-3 if lora else 2e-5
    if mistake == "rate of LoRA":
        rate = 1e-3
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=rate)
    ramp = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 10))
    loader = DataLoader(TensorDataset(text), batch_size=16, shuffle=True)
    for (rows,) in run.steps(
        loader, model=model, optimizer=optimizer, scheduler=ramp, epochs=epochs
    ):
        loss = model(input_ids=rows, labels=rows).loss
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        ramp.step()


def classify(run: Run, *, mistake: str = "", epochs: int = 2) -> None:
    """Tune to say whether a passage has a bracket in it."""
    text = tokens()[: 600 * CONTEXT].view(600, CONTEXT).long()
    labels = (text == text.mode().values.mode().values).sum(1).gt(6).long()
    model = trained_model(classes=2)
    if mistake == "wide head":
        nn.init.normal_(model.score.weight, std=2.0)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    loader = DataLoader(TensorDataset(text, labels), batch_size=16, shuffle=True)
    for rows, wanted in run.steps(loader, model=model, optimizer=optimizer, epochs=epochs):
        loss = F.cross_entropy(model(input_ids=rows).logits, wanted)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class Diffusion(nn.Module):
    """An encoder to a small space, and a denoiser in it."""

    def __init__(self) -> None:
        super().__init__()
        self.vae = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 8))
        self.unet = nn.Sequential(nn.Linear(9, 64), nn.SiLU(), nn.Linear(64, 8))

    def forward(self, pixels: torch.Tensor, noise: torch.Tensor, time: torch.Tensor) -> Any:
        hidden = self.vae(pixels)
        mixed = (1 - time) * hidden + time * noise
        return self.unet(torch.cat([mixed, time], 1))


def denoise(run: Run, *, mistake: str = "", epochs: int = 3) -> None:
    """Train a denoiser in the space of a trained encoder."""
    from stabexp.tasks.digits import digits

    model = Diffusion()
    if mistake != "encoder trained too":
        model.vae.requires_grad_(False)
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-3)
    data = TensorDataset(digits()[0].flatten(1))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    for (pixels,) in run.steps(loader, model=model, optimizer=optimizer, epochs=epochs):
        noise, time = torch.randn(len(pixels), 8), torch.rand(len(pixels), 1)
        loss = F.mse_loss(model(pixels, noise, time), noise)
        run.log(loss)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
