"""A plain recurrent network that predicts the next character: where gradients explode."""

from __future__ import annotations

from typing import Literal

from torch import nn

from stabexp.tasks.recurrent import RecurrentModel, RecurrentTask


class RNN(RecurrentTask):
    """Predict the next character with a plain recurrent network."""

    activation: Literal["tanh", "relu"] = "tanh"
    """The nonlinearity; a relu state has no upper bound."""

    def model(self) -> nn.Module:
        layers = nn.RNN(
            self.width,
            self.width,
            self.layers,
            nonlinearity=self.activation,
            batch_first=True,
            dropout=self.between_layers(),
        )
        return RecurrentModel(self, layers)
