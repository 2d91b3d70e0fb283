"""A training is set up as far as its data and ended before an update, to look at samples."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from stabexp import interventions as changing
from stabexp.errors import StabexpError
from stabexp.instruments.shown_batches import FewRows, telling_rows
from stabexp.interventions.show_samples import write_batches
from stabexp.records import Change
from stabexp.training.batches import END
from stabexp.training.execute import execute
from stabexp.training.run import Run
from stabexp.training.settings import Program


class _Reached(BaseException):
    """Everything that was wanted is there; no `except Exception` of the user's holds it up."""


class SetUp(Run):
    """A run that ends as soon as its data is known; of a stream, when chosen batches were read."""

    def __init__(self, program: Program, wanted: Sequence[int]) -> None:
        show = Change(variable="show_samples", dose=write_batches(tuple((i,) for i in wanted)))
        interventions = changing.build((show,), base=program.settings.base)
        super().__init__(
            program.settings, interventions=interventions, until=len(wanted), judged=False
        )
        self.batches: dict[int, FewRows] = {}
        """A few rows of each chosen batch of a stream."""
        self._wanted = tuple(wanted)

    def begin(self, **given: Any) -> None:
        super().begin(**given)
        data = given.get("data")
        if self.dataset is None and data is not None and data.numbers_batches:
            self._read(data)
        raise _Reached

    def _read(self, feed: Any) -> None:
        feed.start(0)
        try:
            for _ in self._wanted:
                if (batch := feed.read()) is END:
                    return
                self.batches[feed.use()[0]] = FewRows(batch, telling_rows(batch) or (0,))
        finally:
            feed.close()


def set_up(program: Program, wanted: Sequence[int]) -> SetUp:
    """Return a run of a program whose data is known, and that trained nothing.

    Args:
        program: The training.
        wanted: Ids of samples, at least one; of a stream the numbers of the batches to read.

    Raises:
        TrainingError: If the training function raised before its data was known.
        StabexpError: If it never told its data.
    """
    run = SetUp(program, wanted)
    with suppress(_Reached):
        execute(program, run)
    if run.dataset is None and not run.batches:
        raise StabexpError(
            "the training ended before it told which data it uses, or has no batch of that number"
        )
    return run
