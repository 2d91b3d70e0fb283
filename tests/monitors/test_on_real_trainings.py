"""Alarms of real runs, as a user meets them; and that watching changes nothing."""

from __future__ import annotations

import pytest

from stabexp import api
from stabexp.config import Document, validate
from stabexp.experiment import Experiment, program
from stabexp.monitors import MONITORS
from stabexp.tracking import RunDirectory
from stabexp.training import Run, execute

TRAIN = """\
import peft
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 1)
        self.fault = ""

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (2, 12)).transpose(1, 2).chunk(3, dim=-1)
        scores = q @ k.transpose(-2, -1)
        if self.fault == "rows masked whole":
            scores[:, :, 1:] = float("-inf")
        out = (scores.softmax(-1).nan_to_num() @ v).transpose(1, 2).flatten(-2)
        if self.fault == "constant features":
            out = out * 0.0
        return self.head(self.norm(out))


def train(run, fault):
    torch.manual_seed(0)
    model = Attending()
    if fault == "NaN in an adapter":
        model = peft.get_peft_model(model, peft.LoraConfig(target_modules=["qkv"], r=2))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    data = TensorDataset(torch.randn(256, 6, 8))

    def collate(rows):
        dropped = fault == "samples dropped" and run.step in {7, 8}
        return torch.stack([x for x, in rows[2 * dropped :]])

    loader = DataLoader(data, batch_size=8, shuffle=True, collate_fn=collate)
    for x in run.steps(loader, model=model, optimizer=optimizer, epochs=1):
        if run.step == 25:
            model.fault = fault
        loss = model(x).pow(2).mean()
        if fault == "loss a million times too large" and run.step == 25:
            loss = loss * 1e6
        if fault == "NaN in an adapter" and run.step == 25:
            with torch.no_grad():
                model.base_model.model.qkv.lora_A["default"].weight[0, 3] = float("nan")
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

EVERY_STEP = {name: {"every": 1} for name in MONITORS if name not in {"half_range", "ranks"}}

ADAPTER = "base_model.model.qkv.lora_A.default"


@pytest.mark.usefixtures("nowhere", "no_uploader_left")
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("none", []),
        ("NaN in an adapter", ["not finite at step 25: NaN or Inf in the weights of"]),
        ("loss a million times too large", ["gradient explodes at step 25: gradient norm of qkv"]),
        ("samples dropped", ["batches cut short at step 8"]),
        ("rows masked whole", ["empty attention rows at step 25"]),
        ("constant features", ["constant input to a normalisation at step 25"]),
    ],
)
def test_a_run_tells_what_was_alarming(tmp_path, fault, told):
    (tmp_path / "own.py").write_text(TRAIN)
    result = api.run(
        f"{tmp_path / 'own.py'}:train",
        root=tmp_path / "runs",
        drain_seconds=0,
        threads=1,
        monitors=EVERY_STEP,
        detectors=["non_finite"],
        args={"fault": fault},
    )
    assert (result.divergence is not None) == fault.startswith("NaN")
    alarms = [e for e in RunDirectory.open(result.directory).read_events() if "alarm" in e]
    assert bool(alarms) == bool(told)
    for start in told:
        assert any(notice.startswith(start) for notice in result.notices), result.notices
        assert any(event["message"].startswith(start) for event in alarms)
    if fault.startswith("NaN"):
        assert alarms[0]["layer"].startswith("base_model.model.")
        assert any(event["layer"] == ADAPTER for event in alarms)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_watching_with_everything_changes_no_bit(tmp_path, precision):
    def train(monitors):
        task = {"width": 8, "layers": 1, "heads": 2, "context": 8, "dropout": 0.1}
        values = {
            "name": "watched",
            "steps": 6,
            "task": {"name": "gpt", "args": task},
            "optimizer": {"name": "adamw", "lr": 1e-3},
            "clip": 0.5,
            "precision": precision,
            "batch": {"size": 4, "accumulate": 2},
            "monitors": monitors,
        }
        made = program(validate(Experiment, Document("test", values)), base=tmp_path)
        records = []
        execute(made, Run(made.settings, on_step=records.append))
        return records

    bare, watched = train({}), train(EVERY_STEP)
    assert [r.digest for r in watched] == [r.digest for r in bare]
    assert [r.loss for r in watched] == [r.loss for r in bare]
    last = watched[-1].layers
    assert last is not None
    assert {"attention_logit", "attention_entropy"} <= set(last["blocks.0.attention"])
    assert {"grad_zeros", "update_ratio", "activation_rms"} <= set(last["blocks.0.up"])
