"""Every trainer lets its user say how a sample is shown; looking at one trains nothing."""

from __future__ import annotations

import textwrap

import pytest

import stabexp
from stabexp import samples

LIGHTNING = """
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader

from stabexp.integrations.lightning import StabexpCallback


class Line(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 1)

    def training_step(self, batch, index):
        return nn.functional.mse_loss(self.net(batch["x"]), batch["y"])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def train(run):
    data = [{"x": torch.ones(4) * i, "y": torch.ones(1)} for i in range(32)]
    callback = StabexpCallback(run, show=lambda sample: f"{sample['x'][0]:.0f} four times")
    trainer = L.Trainer(max_epochs=1, accelerator="cpu", logger=False, callbacks=[callback])
    trainer.fit(Line(), DataLoader(data, batch_size=8, shuffle=True))
"""

ACCELERATE = """
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader

from stabexp.integrations.accelerate import accelerated


def train(run):
    accelerator = Accelerator(cpu=True)
    data = [{"x": torch.ones(4) * i, "y": torch.ones(1)} for i in range(32)]
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    loader = DataLoader(data, batch_size=8, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in run.steps(
        loader,
        model=model,
        optimizer=optimizer,
        epochs=1,
        extra=accelerated(accelerator),
        show=lambda sample: f"{sample['x'][0]:.0f} four times",
    ):
        loss = nn.functional.mse_loss(model(batch["x"]), batch["y"])
        run.log(loss)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
"""

HUGGING_FACE = """
import torch
from torch import nn
from transformers import Trainer, TrainingArguments

from stabexp.integrations.transformers import StabexpCallback


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 1)

    def forward(self, x, labels):
        return {"loss": nn.functional.mse_loss(self.net(x), labels)}


def train(run):
    data = [{"x": torch.ones(4) * i, "labels": torch.ones(1)} for i in range(32)]
    arguments = TrainingArguments(
        output_dir="out", max_steps=4, per_device_train_batch_size=8, save_strategy="no",
        report_to=[], use_cpu=True, disable_tqdm=True, learning_rate=1e-4,
    )
    callback = StabexpCallback(run, show=lambda sample: f"{sample['x'][0]:.0f} four times")
    Trainer(model=Line(), args=arguments, train_dataset=data, callbacks=[callback]).train()
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(LIGHTNING, id="Lightning"),
        pytest.param(ACCELERATE, id="Accelerate"),
        pytest.param(HUGGING_FACE, id="Hugging Face"),
    ],
)
def test_samples_are_shown_as_their_user_says(tmp_path, nowhere, no_uploader_left, text):
    file = tmp_path / "train.py"
    file.write_text(textwrap.dedent(text), "utf-8")
    result = stabexp.run(f"{file}:train", root=tmp_path, threads=1, drain_seconds=0)
    steps = (result.directory / "steps.jsonl").read_bytes()
    found = samples(result.run_id, [5, 9], root=tmp_path)
    assert [view.parts[0].text for view in found.views[:2]] == ["5 four times", "9 four times"]
    assert (result.directory / "steps.jsonl").read_bytes() == steps
    assert not (result.directory / "bisects").exists()
