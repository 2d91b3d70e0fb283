"""A small GPT: a decoder-only transformer that predicts the next character.

Attention is written out, scores, softmax and all, so that every tensor that can overflow in half
precision is one a monitor can see.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from stabexp.tasks.text import VOCABULARY, TextTask


class GPT(TextTask):
    """Predict the next character with a transformer (GPT-2's layout)."""

    width: int = Field(32, ge=1)
    """Size of the residual stream; 128 with 4 layers makes 0.8 million parameters."""

    layers: int = Field(2, ge=1)
    """Number of blocks."""

    heads: int = Field(4, ge=1)
    """Attention heads; must divide `width`."""

    norm: Literal["pre", "post", "none"] = "pre"
    """Where LayerNorm sits: before each branch (GPT-2), after each addition (2017), or nowhere."""

    dropout: float = Field(0.0, ge=0, lt=1)
    """Probability of dropping an embedding, an attention weight or a branch's output."""

    init_std: float = Field(0.02, ge=0)
    """Standard deviation of the weights at the start; branch outputs get it ÷ √(2 × layers)."""

    tied: bool = True
    """Whether the output layer is the transposed token embedding."""

    qk_scale: float | None = None
    """Factor on the attention scores; the default is 1/√(width ÷ heads)."""

    @model_validator(mode="after")
    def _heads_divide_width(self) -> GPT:
        if self.width % self.heads:
            raise ValueError(
                f"heads {self.heads} does not divide width {self.width}; "
                f"set width to a multiple of heads, such as {self.heads * 8}"
            )
        return self

    def model(self) -> nn.Module:
        return Transformer(self)


class Transformer(nn.Module):
    """(batch, length) token ids → (batch, length, VOCABULARY) logits; length ≤ context."""

    def __init__(self, task: GPT) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, task.width)
        self.positions = nn.Embedding(task.context, task.width)
        self.dropout = nn.Dropout(task.dropout)
        self.blocks = nn.ModuleList(Block(task) for _ in range(task.layers))
        self.norm = nn.LayerNorm(task.width) if task.norm == "pre" else nn.Identity()
        self.head = nn.Linear(task.width, VOCABULARY, bias=False)
        for name, module in self.named_modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                branch_end = name.endswith((".out", ".down"))
                std = task.init_std / (math.sqrt(2 * task.layers) if branch_end else 1)
                nn.init.normal_(module.weight, std=std)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        if task.tied:
            self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        x = self.dropout(x)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


class Block(nn.Module):
    """Attention, then a two-layer network, each added to the residual stream."""

    def __init__(self, task: GPT) -> None:
        super().__init__()
        self.order = task.norm
        none = task.norm == "none"
        self.attention_norm = nn.Identity() if none else nn.LayerNorm(task.width)
        self.attention = Attention(task)
        self.network_norm = nn.Identity() if none else nn.LayerNorm(task.width)
        self.up = nn.Linear(task.width, 4 * task.width)
        self.down = nn.Linear(4 * task.width, task.width)
        self.dropout = nn.Dropout(task.dropout)

    def forward(self, x: Tensor) -> Tensor:
        if self.order == "post":
            x = self.attention_norm(x + self.dropout(self.attention(x)))
            return self.network_norm(x + self._network(x))  # type: ignore[no-any-return]
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        return x + self._network(self.network_norm(x))

    def _network(self, x: Tensor) -> Tensor:
        out: Tensor = self.dropout(self.down(F.gelu(self.up(x))))
        return out


class Attention(nn.Module):
    """Causal self-attention with the scores written out."""

    mask: Tensor

    def __init__(self, task: GPT) -> None:
        super().__init__()
        self.heads = task.heads
        default = 1 / math.sqrt(task.width // task.heads)
        self.scale = default if task.qk_scale is None else task.qk_scale
        self.qkv = nn.Linear(task.width, 3 * task.width)
        self.out = nn.Linear(task.width, task.width)
        self.dropout = nn.Dropout(task.dropout)
        future = torch.ones(task.context, task.context, dtype=torch.bool).triu(1)
        self.register_buffer("mask", future, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * self.scale
        scores = scores.masked_fill(self.mask[:length, :length], float("-inf"))
        weights = self.dropout(scores.softmax(-1))
        mixed = (weights @ v).transpose(1, 2).reshape(batch, length, width)
        out: Tensor = self.out(mixed)
        return out
