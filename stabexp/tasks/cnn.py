"""A convolutional network on handwritten digits."""

from __future__ import annotations

from pydantic import Field
from torch import nn

from stabexp.tasks.digits import DigitsTask, initialise


class CNN(DigitsTask):
    """Say which digit an image shows, with 3 × 3 convolutions."""

    width: int = Field(16, ge=1)
    """Channels of each convolution."""

    depth: int = Field(2, ge=1)
    """Number of convolutions; the image is halved after the first two."""

    def model(self) -> nn.Module:
        layers: list[nn.Module] = []
        channels, side = 1, 8
        for index in range(self.depth):
            layers.append(nn.Conv2d(channels, self.width, 3, padding=1))
            channels = self.width
            if self.norm == "batch":
                layers.append(nn.BatchNorm2d(channels))
            elif self.norm == "layer":
                layers.append(nn.GroupNorm(1, channels))
            layers += [nn.ReLU(), nn.Dropout(self.dropout)]
            if index < 2:
                layers.append(nn.MaxPool2d(2))
                side //= 2
        head = nn.Linear(channels * side * side, self.class_count())
        model = nn.Sequential(*layers, nn.Flatten(), head)
        initialise(model, scale=self.init_scale)
        return model
