"""What the samples at fault hold is in the report's records: pictures, texts, tokens, batches."""

from __future__ import annotations

import base64
import inspect
import io
import json
import textwrap

import numpy as np
import pytest
from PIL import Image

import stabexp
from stabexp import samples
from stabexp.errors import StabexpError

DIGITS = """
import torch
from sklearn.datasets import load_digits
from torch import nn

BAD = 77


class Digits(torch.utils.data.Dataset):
    def __init__(self):
        bunch = load_digits()
        self.images = torch.tensor(bunch.images[:640], dtype=torch.float32)[:, None] / 16
        self.labels = torch.tensor(bunch.target[:640])
        self.images[BAD] *= 2000
        self.labels[BAD] = (self.labels[BAD] + 5) % 10

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"image": self.images[index], "label": self.labels[index]}


def train(run):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for batch in run.steps(Digits(), model=model, optimizer=optimizer):
        loss = nn.functional.cross_entropy(model(batch["image"]), batch["label"])
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

TEXTS = """
import inspect
import textwrap

import torch
from torch import nn
from torch.utils.data import DataLoader

BAD = 90
JAPANESE = "発散した理由を探す。"


def texts():
    lines = [line for line in inspect.getsource(textwrap).split("\\n") if len(line) > 30]
    found = [{"text": (lines * 4)[i], "long": float(len((lines * 4)[i]) > 60)} for i in range(400)]
    found[BAD] = {"text": JAPANESE * 3000, "long": -1.0}
    return found


def collate(samples):
    counts = [[sample["text"].count(letter) for letter in "etaoin 発"] for sample in samples]
    return torch.tensor(counts).float(), torch.tensor([[sample["long"]] for sample in samples])


def train(run):
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(texts(), batch_size=16, shuffle=True, collate_fn=collate)
    for x, y in run.steps(loader, model=model, optimizer=optimizer):
        loss = nn.functional.mse_loss(model(x), y)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

STREAM = """
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __init__(self):
        stream = torch.Generator().manual_seed(1)
        self.x = torch.randn(1600, 8, generator=stream)
        self.y = self.x[:, :1] * 2 - self.x[:, 1:2]
        self.y += 0.1 * torch.randn(1600, 1, generator=stream)
        self.x[1003] = torch.randn(8, generator=stream) * 2000
        self.y[1003] = 1e4

    def __iter__(self):
        yield from zip(self.x, self.y)


def train(run):
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for x, y in run.steps(DataLoader(Stream(), 16), model=model, optimizer=optimizer):
        loss = nn.functional.mse_loss(model(x), y)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

TOKENS = """
import inspect
import textwrap

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2ForSequenceClassification, PreTrainedTokenizerFast
from transformers import Trainer, TrainingArguments

from stabexp.integrations.transformers import StabexpCallback

BAD = 41
SOURCE = [line.strip() for line in inspect.getsource(textwrap).split("\\n") if len(line) > 30]


def tokenizer():
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    special = trainers.BpeTrainer(vocab_size=300, special_tokens=["<pad>"], show_progress=False)
    inner.train_from_iterator(SOURCE, special)
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>")


def train(run):
    words = tokenizer()
    data = [
        {**words(line, truncation=True, max_length=24), "labels": len(line) / 60}
        for line in (SOURCE * 3)[:240]
    ]
    data[BAD]["labels"] = 1e5
    config = GPT2Config(
        vocab_size=300, n_positions=24, n_embd=16, n_layer=1, n_head=2, num_labels=1,
        bos_token_id=0, eos_token_id=0, pad_token_id=0,
    )
    arguments = TrainingArguments(
        output_dir="out", max_steps=60, per_device_train_batch_size=8, learning_rate=3e-3,
        optim="sgd", max_grad_norm=0.0, save_strategy="no", report_to=[], use_cpu=True,
        disable_tqdm=True, lr_scheduler_type="constant",
    )
    Trainer(
        model=GPT2ForSequenceClassification(config), args=arguments, train_dataset=data,
        processing_class=words, callbacks=[StabexpCallback(run)],
    ).train()
"""


def diverged(folder, text, **settings):
    """Train a file's function until it diverges; return the run."""
    file = folder / "train.py"
    file.write_text(textwrap.dedent(text), "utf-8")
    usual = {"threads": 1, "checkpoint": {"every": 10}, "batch": {"size": 16}, "steps": 120}
    result = stabexp.run(f"{file}:train", root=folder, drain_seconds=0, **{**usual, **settings})
    assert result.status == "diverged"
    return result


def bisected(folder, text, **settings):
    """Bisect a file's training; return its run, its verdict and what is kept of samples."""
    result = diverged(folder, text, **settings)
    verdict = stabexp.bisect(result.run_id, root=folder, workers=0, drain_seconds=0)
    file = result.directory / "bisects" / "bisect-1" / "samples.json"
    return result, verdict, json.loads(file.read_text("utf-8")) if file.exists() else None


def test_a_bad_image_is_in_the_records_as_a_picture(tmp_path):
    result, verdict, kept = bisected(tmp_path, DIGITS)
    assert (verdict.cause, verdict.culprit.samples) == ("data", (77,))
    bad, *ordinary = kept["samples"]
    assert (bad["sample"], bad["blamed"], len(ordinary)) == (77, True, 2)
    picture, label = bad["parts"]
    assert picture["unusual"].startswith("values up to 2000, 2,000 × the usual 1")
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(picture["image"]))))
    assert pixels.shape == (64, 64)
    assert pixels.std() > 50
    assert (picture["name"], label["name"], label["kind"]) == ("image", "label", "numbers")
    assert any(
        77 in step.sample_ids
        for step in stabexp.load(result.run_id, root=tmp_path).records
        if step.step == bad["step"]
    )
    outbox = (result.directory / "bisects" / "bisect-1" / "outbox.jsonl").read_text("utf-8")
    assert '"file": "samples.json"' in outbox


def test_a_bad_text_is_in_the_records_as_text(tmp_path):
    _, verdict, kept = bisected(tmp_path, TEXTS)
    assert (verdict.cause, verdict.culprit.samples) == ("data", (90,))
    text, label = kept["samples"][0]["parts"]
    assert text["text"].startswith("発散した理由を探す。")
    assert text["unusual"].startswith("30,000 characters, usually")
    assert label["unusual"] == ""


def test_token_ids_of_a_trainer_are_kept_as_their_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result, verdict, kept = bisected(tmp_path, TOKENS, steps=None)
    assert (verdict.cause, verdict.culprit.samples) == ("data", (41,))
    parts = {part["name"]: part for part in kept["samples"][0]["parts"]}
    lines = [line.strip() for line in inspect.getsource(textwrap).split("\n") if len(line) > 30]
    assert parts["input_ids"]["kind"] == "text"
    assert lines[41].startswith(parts["input_ids"]["text"].strip()[:20])
    assert parts["labels"]["unusual"].startswith("values up to 100000, 100,000 × the usual")
    again = samples(result.run_id, [7], root=tmp_path)  # the Trainer is set up and does not train
    assert lines[7].startswith(again.views[0].parts[0].text.strip()[:20])


def test_of_a_bad_batch_of_a_stream_the_row_that_stands_out_is_kept(tmp_path):
    result, verdict, kept = bisected(tmp_path, STREAM, steps=90)
    assert verdict.culprit.samples == (62,)
    rows = {part["name"]: part["unusual"] for part in kept["samples"][0]["parts"]}
    assert list(rows) == ["row 11.0", "row 11.1", "row 0.0", "row 0.1", "row 1.0", "row 1.1"]
    assert "× the usual" in rows["row 11.0"]
    assert {rows["row 0.0"], rows["row 1.0"]} == {""}
    again = samples(result.run_id, [62, 3], root=tmp_path)
    assert [view.parts[0].name for view in again.views][:2] == ["row 11.0", "row 0.0"]


def test_private_data_stays_out_of_every_record(tmp_path):
    result, verdict, kept = bisected(tmp_path, TEXTS, bisect={"show_samples": False})
    assert verdict.culprit.samples == (90,)
    assert kept is None
    assert not list(result.directory.rglob("samples.json"))


def test_any_sample_of_a_run_can_be_looked_at_without_training(tmp_path):
    result = diverged(tmp_path, DIGITS)
    found = samples(result.run_id, [77, 5], root=tmp_path)
    assert [view.sample for view in found.views][:2] == [77, 5]
    assert found.views[0].parts[0].unusual.startswith("values up to 2000")
    assert not found.views[0].blamed  # nobody has blamed it yet
    assert not list(result.directory.glob("bisects/*"))
    with pytest.raises(StabexpError, match="there is no sample 640; the dataset has 640 samples"):
        samples(result.run_id, [640], root=tmp_path)
    with pytest.raises(StabexpError, match="no samples are blamed; find out why it diverged"):
        samples(result.run_id, root=tmp_path)
