"""Everything that hangs in a training's objects while it runs, put up together and taken down.

The optimizer boundary with its monitors, the changes of a replay, the instruments that watch it,
and what watches autocast: a training that is over finds its objects as they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from stabexp.instruments.base import Instrument, Watched
from stabexp.interventions import Intervention
from stabexp.monitors import Monitor
from stabexp.stabilisers import Stabiliser
from stabexp.training.asked import Asked
from stabexp.training.autocast_watch import AutocastWatch
from stabexp.training.boundary import Boundary
from stabexp.training.changes import Changes
from stabexp.training.changes_format import WeightFormat
from stabexp.training.parts import Parts
from stabexp.training.seen import seen_in
from stabexp.training.stabilising import Stabilising


class Hooks:
    """What a run leaves in the objects it was given."""

    def __init__(
        self,
        asked: Asked,
        interventions: Sequence[Intervention],
        *,
        monitors: Sequence[Monitor],
        instruments: Sequence[Instrument],
        stabilisers: Mapping[str, Stabiliser],
    ) -> None:
        self.stabilising = Stabilising(stabilisers)
        self.boundary: Boundary | None = None
        self.autocasts: AutocastWatch | None = None
        self._asked = asked
        self._changes = Changes(interventions)
        self._monitors = monitors
        self._instruments = list(instruments)
        self._weights: WeightFormat | None = None
        self._closed = False

    @property
    def format_changed(self) -> bool:
        """Whether another number format took hold in the loop's own regions or weights."""
        return self._weights is not None or (self.autocasts is not None and self.autocasts.acted)

    def watch_autocast(self) -> None:
        """Begin before the first batch is worked on."""
        self.autocasts = AutocastWatch(self._asked.other_format())

    def change_weights(self, parts: Parts) -> None:
        """Hold the weights in another format, where that is asked; before a state is put back."""
        if (other := self._asked.other_format()) is not None:
            self._weights = WeightFormat.of(parts.model, other.weights, optimizers=parts.optimizers)

    def put_up(
        self, parts: Parts, *, step: int, scratch: bool, accumulate: int, samples: int | None
    ) -> Boundary:
        """Put everything in place, once the state is that of `step`.

        Args:
            parts: What is trained.
            step: The first step.
            scratch: Whether the weights are those the training started with.
            accumulate: Configured micro-batches per update.
            samples: Samples of the dataset, None if unknown.
        """
        self._changes.begin(parts.model, parts.optimizers, scratch=scratch)
        self.stabilising.attach(parts.model, parts.optimizers, step=step)
        self.boundary = Boundary(
            parts.model,
            parts.optimizers,
            scaler=parts.scaler,
            monitors=self._monitors,
            clip=lambda own: self.stabilising.clip_norm(self._asked.clip(own)),
            lr_scale=lambda at: self._asked.lr_scale(at) * self.stabilising.lr_scale(at),
            changes=self._changes,
            stabilising=self.stabilising,
        )
        if len(parts.optimizers) > 1:
            self._instruments = [each for each in self._instruments if not each.one_optimizer]
        watched = Watched(
            model=parts.model,
            optimizer=parts.optimizers[0],
            scaler=parts.scaler,
            scheduler=parts.scheduler,
            accumulate=accumulate,
            dataset_size=samples,
            extra=parts.extra,
        )
        for instrument in self._instruments:
            instrument.attach(watched)
        self.boundary.begin(step)
        return self.boundary

    @contextmanager
    def around(self, batch: Any, *, step: int, ids: Sequence[int]) -> Iterator[Any]:
        """Put what acts on single batches around the loop's work on one."""
        batch = self._changes.batch_begins(batch)
        begun: list[Instrument] = []
        try:
            for instrument in self._instruments:
                instrument.batch_begins(step, ids, batch)
                begun.append(instrument)
            with self.stabilising.around(step):
                yield batch
        finally:
            for instrument in reversed(begun):
                instrument.batch_ends()
            self._changes.batch_ends()

    def logged(self, loss: Tensor) -> None:
        """Tell changes and instruments of a loss."""
        self._changes.logged(loss)
        self.stabilising.logged(loss)
        for instrument in self._instruments:
            instrument.logged(loss)

    def update_ends(self, step: int) -> None:
        """Tell changes and instruments that a step is complete."""
        self._changes.update_ends()
        for instrument in self._instruments:
            instrument.update_ends(step)

    def seen(self, parts: Parts, largest: tuple[int, int]) -> dict[str, Any]:
        """Return what the loop was seen to do.

        `largest` is how many samples and batches the largest update had.
        """
        return seen_in(
            parts,
            clipped_at=self.boundary.clipped_at if self.boundary else None,
            autocast=self.autocasts.seen if self.autocasts else None,
            samples=largest[0],
            micro_batches=largest[1],
        )

    def take_down(self) -> None:
        """Take everything back; harmless when it was."""
        if self._closed:
            return
        self._closed = True
        if self.boundary is not None:
            self.boundary.close()
        self.stabilising.detach()
        self._changes.end()
        if self._weights is not None:
            self._weights.remove()
        if self.autocasts is not None:
            self.autocasts.remove()
        for instrument in self._instruments:
            instrument.detach()
