"""Further trainings, of other kinds, written when the rules were finished and scored once.

A GAN, a translation from digits to words with attention, a recurrent tagger, a ResNet with frozen
stages, Lightning and the Hugging Face Trainer, a half-precision accumulator, a sparse table.
"""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, Dataset, TensorDataset

from stabexp import Run
from stabexp.tasks.digits import digits
from stabexp.tasks.text import VOCABULARY, tokens

BEGIN, END, PAD = 10, 11, 12
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
LETTERS = "".join(sorted(set("".join(WORDS))))


def gan(run: Run, *, mistake: str = "", epochs: int = 2) -> None:
    """Train a generator of digits against a critic."""
    generator = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh())
    critic = nn.Sequential(nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
    if mistake == "sigmoid before logits":
        critic.append(nn.Sigmoid())
    first = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    second = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
    pixels = digits()[0].flatten(1) * 2 - 1
    loader = DataLoader(TensorDataset(pixels), batch_size=32, shuffle=True)
    steps = run.steps(
        loader,
        model={"generator": generator, "critic": critic},
        optimizer={"generator": first, "critic": second},
        epochs=epochs,
    )
    for (real,) in steps:
        made = generator(torch.randn(len(real), 8))
        yes, no = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        judged = F.binary_cross_entropy_with_logits(critic(real), yes)
        judged = judged + F.binary_cross_entropy_with_logits(critic(made.detach()), no)
        second.zero_grad()
        judged.backward()
        second.step()
        fooled = F.binary_cross_entropy_with_logits(critic(made), yes)
        first.zero_grad()
        fooled.backward()
        first.step()
        run.log(judged.detach() + fooled.detach())


class Translator(nn.Module):
    """Read two digits as images, write them as words: encoder, decoder and attention."""

    def __init__(self, mistake: str) -> None:
        super().__init__()
        self.mistake = mistake
        self.read = nn.Linear(64, 32)
        self.embedding = nn.Embedding(len(LETTERS) + 3, 32)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.decoder = nn.GRU(32, 32, batch_first=True)
        self.head = nn.Linear(64, len(LETTERS) + 3)

    def forward(self, images: Tensor, before: Tensor) -> Tensor:
        memory = self.read(images)
        hidden, _ = self.decoder(self.embedding(before))
        scores = hidden @ memory.mT
        if self.mistake == "exponential in half":
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
                raised = (scores.half() * 40 + 9).exp()
                weights = (raised / raised.sum(-1, keepdim=True)).float()
        else:
            weights = scores.softmax(-1)
        logits: Tensor = self.head(torch.cat([hidden, weights @ memory], -1))
        return logits


def translate(run: Run, *, mistake: str = "", epochs: int = 4) -> None:
    """Train the translator, with teacher forcing."""
    images, labels = digits()
    images = (images.flatten(1) - images.mean()) / images.std()
    pairs = torch.randperm(1796, generator=torch.Generator().manual_seed(2)).view(-1, 2)
    written = []
    for a, b in labels[pairs].tolist():
        text = [LETTERS.index(c) for c in WORDS[a] + WORDS[b]]
        row = [len(LETTERS), *text, len(LETTERS) + 1]
        written.append(row + [len(LETTERS) + 2] * (14 - len(row)))
    data = TensorDataset(images[pairs], torch.tensor(written))
    model = Translator(mistake)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    loader = DataLoader(data, batch_size=16, shuffle=True)
    passes = epochs * len(loader)
    schedule = CosineAnnealingLR(optimizer, epochs if mistake == "cosine of passes" else passes)
    for pictures, rows in run.steps(
        loader, model=model, optimizer=optimizer, scheduler=schedule, epochs=epochs
    ):
        logits = model(pictures, rows[:, :-1])
        loss = F.cross_entropy(
            logits.flatten(0, 1), rows[:, 1:].flatten(), ignore_index=len(LETTERS) + 2
        )
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


def tagger(run: Run, *, mistake: str = "", epochs: int = 1) -> None:
    """Train a bidirectional LSTM to mark characters that end a word."""
    text = tokens()[:32_000].view(1000, 32).long()
    blank = int(text.flatten().mode().values)
    tags = (text == blank).long()
    if mistake == "tags of another count":
        tags += 3
    model = nn.ModuleDict(
        {
            "embedding": nn.Embedding(VOCABULARY, 24),
            "lstm": nn.LSTM(24, 24, batch_first=True, bidirectional=True),
            "head": nn.Linear(48, 4),
        }
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loader = DataLoader(TensorDataset(text, tags), batch_size=20, shuffle=True)
    for rows, wanted in run.steps(loader, model=model, optimizer=optimizer, epochs=epochs):
        hidden, _ = model["lstm"](model["embedding"](rows))
        loss = F.cross_entropy(model["head"](hidden).mT, wanted)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


class Block(nn.Module):
    """x + f(x)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        return (x + self.body(x)).relu()


def resnet(run: Run, *, mistake: str = "", epochs: int = 2) -> None:
    """Train the end of a residual network whose beginning is frozen, in bfloat16."""
    images, labels = digits()
    images = (images - images.mean()) / images.std()
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), Block(8), Block(8), nn.Flatten())
    model.append(nn.Linear(512, 10))
    model[:2].requires_grad_(False)
    optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.02)
    loader = DataLoader(TensorDataset(images, labels), batch_size=32, shuffle=True)
    for pixels, wanted in run.steps(loader, model=model, optimizer=optimizer, epochs=epochs):
        model.train()
        if mistake != "all in training mode":
            model[:2].eval()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(pixels), wanted)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class Sentences(Dataset[dict[str, Tensor]]):
    """Passages of text with an attention mask."""

    def __init__(self, mistake: str) -> None:
        text = tokens()[: 512 * 16].view(512, 16).long().clone()
        self.labels = text.clone()
        self.mask = torch.ones_like(text)
        if mistake == "ids of another tokenizer":
            text[:, ::5] += VOCABULARY
        if mistake == "masked rows":
            self.mask[::8] = 0
        self.text = text

    def __len__(self) -> int:
        return len(self.text)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {
            "input_ids": self.text[index],
            "attention_mask": self.mask[index],
            "labels": self.labels[index],
        }


def trainer(run: Run, *, mistake: str = "", **others: Any) -> None:
    """Train GPT-2 with the Hugging Face Trainer."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    from experiments.trainers.hugging_face import arguments, recipe
    from stabexp.integrations.transformers import StabexpCallback

    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=16,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    with tempfile.TemporaryDirectory() as folder:
        chosen = arguments(folder, recipe(None, lr=0.3, too_high=2.0), **others)
        Trainer(
            model=GPT2LMHeadModel(config),
            args=TrainingArguments(**chosen),
            train_dataset=Sentences(mistake),
            callbacks=[StabexpCallback(run)],
        ).train()


def lightning(run: Run, *, mistake: str = "", epochs: int = 2) -> None:
    """Train digits with Lightning."""
    import lightning as L

    from experiments.trainers.lightning_digits import loader
    from stabexp.integrations.lightning import StabexpCallback

    class Module(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.2))
            self.head = nn.Linear(32, 10)

        def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
            pixels, labels, _ = batch
            hidden = self.body(pixels)
            if mistake == "body detached":
                hidden = hidden.detach()
            return F.cross_entropy(self.head(hidden), labels)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=1e-3)

    made = L.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        callbacks=[StabexpCallback(run)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    made.fit(Module(), loader())
