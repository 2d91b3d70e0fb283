"""Images come as planes: their channels are the second dimension, in memory as in shape.

Channels that come last mostly raise in the first convolution; brought to the right shape with
reshape they do not, and the network sees stripes (source row B7).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor

from stabexp.instruments.rule_base import Call, Finding, Rule, place


class ChannelOrder(Rule):
    """A convolution's channels are the second dimension of what enters it."""

    slug: ClassVar[str] = "channel_order"
    watches_before: ClassVar[frozenset[str]] = frozenset({"conv2d"})

    def __init__(self) -> None:
        self._due = True
        self._step = 0
        self._found: Finding | None = None
        self._interleaved: list[tuple[int, float, float, str]] = []
        self._batches = 0

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        self._step, self._due = step, True

    def calling(self, call: Call) -> None:
        x, weight = call.argument(0, "input"), call.argument(1, "weight")
        if not self._due or not isinstance(x, Tensor) or x.dim() != 4:
            return
        self._due = False
        self._batches += 1
        channels = weight.shape[1] * int(call.argument(6, "groups", 1))
        if x.shape[1] != channels and x.shape[3] == channels:
            self._found = self._found or Finding(
                rule=self.slug,
                step=self._step,
                place=place(),
                detail=f"an input of shape {tuple(x.shape)} enters a convolution with {channels} "
                "channels: its channels come last",
                remedy="bring the channels to the second dimension: images.permute(0, 3, 1, 2)",
            )
        elif channels == 3 and not x.requires_grad and x[0].numel() >= 192:
            flat = x.detach().float().flatten(1)
            near = float((flat[:, 1:] - flat[:, :-1]).abs().mean())
            third = float((flat[:, 3:] - flat[:, :-3]).abs().mean())
            if third < 0.75 * near:  # 1 for noise, above it for planes
                self._interleaved.append((self._step, near, third, place()))

    def finding(self) -> Finding | None:
        if self._found or 2 * len(self._interleaved) <= self._batches or not self._interleaved:
            return self._found
        step, near, third, where = self._interleaved[0]
        return Finding(
            rule="channels_interleaved",
            step=step,
            place=where,
            detail=f"values three apart in memory differ by {third:.3g}, neighbours by {near:.3g}: "
            "the channels of a pixel lie side by side though the shape says they are planes",
            remedy="use permute(0, 3, 1, 2), which moves the values, not reshape or view",
        )
