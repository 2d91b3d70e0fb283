"""Small models of images and text with one fault each, in files as users write them."""

from __future__ import annotations

COMMON = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch_embed = nn.Linear(16, 8)
        self.words = nn.Embedding(20, 8)
        self.attention = Attention()
        self.logit_scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, images, tokens, mask):
        image = self.patch_embed(NORMALISE(images)).mean(1)
        text = self.attention(self.words(tokens), mask).mean(1)
        image, text = F.normalize(image, dim=-1), F.normalize(text, dim=-1)
        return SCALED(self.logit_scale) * image @ text.T


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x, mask):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = (q @ k.transpose(1, 2)).masked_fill(mask[:, None, :], float("-inf"))
        return scores.softmax(-1) @ v


def train(run, blank=-1, empty=-1, lr=0.05):
    images = torch.randn(96, 4, 16)
    tokens = torch.randint(0, 20, (96, 6))
    mask = torch.zeros(96, 6, dtype=torch.bool)
    if blank >= 0:
        images[blank] = 0.5  # one image of a single colour
    if empty >= 0:
        mask[empty] = True  # one caption without a word
    model = Model()
    groups = [{"params": [p for n, p in model.named_parameters() if n != "logit_scale"]},
              {"params": [model.logit_scale], "lr": RATE, "maximize": True}]
    optimizer = torch.optim.SGD(groups, lr=lr)
    data = TensorDataset(images, tokens, mask)
    for batch in run.steps(data, model=model, optimizer=optimizer):
        logits = model(*batch)
        loss = F.cross_entropy(logits, torch.arange(len(logits)))
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def source(normalise: str = "", scaled: str = "", rate: float = 0.0) -> str:
    """Return a file with the ways in which images are normalised and logits scaled."""
    careful = "(x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6)"
    text = COMMON.replace("NORMALISE(images)", normalise or careful.replace("x", "images"))
    return text.replace("SCALED(self.logit_scale)", scaled or "self.logit_scale.exp()").replace(
        "RATE", repr(rate)
    )


def experiment(name: str, **arguments: object) -> str:
    """Return the experiment file for `name.py`."""
    return (
        f"name: {name}\nseed: 1\nsteps: 60\nthreads: 1\nbatch: {{size: 8}}\n"
        f"train: {{name: {name}.py:train, args: {arguments}}}\n"
        "checkpoint: {every: 5, keep: 20}\ntracking: {uri: 'http://127.0.0.1:9'}\n"
    )


FAULTS = {
    "masked_attention": (source(), {"empty": 70}, "softmax", "masked attention"),
    "temperature": (
        source(rate=1.0),
        {},
        "exp",
        "the temperature is trained without a bound",
    ),
    "patch_normalisation": (
        source("(images - images.mean(-1, keepdim=True)) / images.std(-1, keepdim=True)"),
        {"blank": 70},
        "div",
        "normalisation of a patch or image of one colour",
    ),
}
"""Name → file, arguments, operation at fault, how the likely reason begins."""
