"""A long short-term memory network that predicts the next character."""

from __future__ import annotations

from torch import nn

from stabexp.tasks.recurrent import RecurrentModel, RecurrentTask


class LSTM(RecurrentTask):
    """Predict the next character with an LSTM."""

    def model(self) -> nn.Module:
        layers = nn.LSTM(
            self.width, self.width, self.layers, batch_first=True, dropout=self.between_layers()
        )
        return RecurrentModel(self, layers)
