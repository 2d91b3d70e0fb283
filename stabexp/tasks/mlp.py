"""A multilayer perceptron on handwritten digits."""

from __future__ import annotations

from pydantic import Field
from torch import nn

from stabexp.tasks.digits import DigitsTask, initialise


class MLP(DigitsTask):
    """Say which digit an image shows, with fully connected layers."""

    width: int = Field(64, ge=1)
    """Size of each hidden layer."""

    depth: int = Field(2, ge=0)
    """Number of hidden layers; 0 is logistic regression."""

    def model(self) -> nn.Module:
        layers: list[nn.Module] = [nn.Flatten()]
        size = 64
        for _ in range(self.depth):
            layers.append(nn.Linear(size, self.width))
            size = self.width
            if self.norm != "none":
                layers.append(nn.BatchNorm1d(size) if self.norm == "batch" else nn.LayerNorm(size))
            layers += [nn.ReLU(), nn.Dropout(self.dropout)]
        model = nn.Sequential(*layers, nn.Linear(size, self.class_count()))
        initialise(model, scale=self.init_scale)
        return model
