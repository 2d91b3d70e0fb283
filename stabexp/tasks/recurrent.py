"""What the recurrent text tasks share: embedding, recurrent layers, one output layer."""

from __future__ import annotations

from typing import cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call

from stabexp.tasks.text import VOCABULARY, TextTask


class RecurrentTask(TextTask):
    """Predict the next character with a recurrent network."""

    width: int = Field(64, ge=1)
    """Size of the hidden state."""

    layers: int = Field(1, ge=1)
    """Number of recurrent layers."""

    dropout: float = Field(0.0, ge=0, lt=1)
    """Probability of dropping a layer's output, the last layer's included."""

    recurrent_gain: float | None = Field(None, ge=0)
    """Start with orthogonal recurrent matrices times this; the default is torch's uniform start.

    With a ReLU, values above 1 let states and gradients grow along the text.
    """

    def between_layers(self) -> float:
        """Return the dropout torch's recurrent layers take; with one layer they accept only 0."""
        return self.dropout if self.layers > 1 else 0.0


class RecurrentModel(nn.Module):
    """(batch, length) token ids → (batch, length, VOCABULARY) logits, from a zero state."""

    def __init__(self, task: RecurrentTask, recurrent: nn.RNNBase) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, task.width)
        self.recurrent = recurrent
        self.dropout = nn.Dropout(task.dropout)
        self.head = nn.Linear(task.width, VOCABULARY)
        if task.recurrent_gain is not None:
            for name, weight in recurrent.named_parameters():
                if name.startswith("weight_hh"):
                    for gate in weight.data.chunk(len(weight) // task.width):
                        nn.init.orthogonal_(gate, task.recurrent_gain)

    def forward(self, ids: Tensor) -> Tensor:
        states, _ = self._states(self.tokens(ids))
        logits: Tensor = self.head(self.dropout(states))
        return logits

    def _states(self, x: Tensor) -> tuple[Tensor, object]:
        cpu = x.device.type == "cpu" and torch.is_autocast_enabled("cpu")
        if not cpu or torch.get_autocast_dtype("cpu") != torch.float16:
            return cast("tuple[Tensor, object]", self.recurrent(x))
        # Autocast sends fp16 to a oneDNN LSTM that most CPUs lack, so its casts are made by hand.
        half = {name: weight.half() for name, weight in self.recurrent.named_parameters()}
        with torch.autocast("cpu", enabled=False):
            return cast("tuple[Tensor, object]", functional_call(self.recurrent, half, (x.half(),)))
