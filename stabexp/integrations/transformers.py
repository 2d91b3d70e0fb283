"""A Hugging Face Trainer drives a run with one line: `callbacks=[StabexpCallback(run)]`.

A callback alone cannot do it: it sees neither the loss (what Trainer logs has its NaNs filtered
out) nor the batches, and Trainer's own way to go on in the middle of an epoch is not exact. So the
callback finds its Trainer, which from then on has a class of its own with a few methods wrapped; a
subclass of Trainer, such as TRL's or the user's, keeps everything it overrides.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from stabexp.errors import NotReplayableError
from stabexp.integrations.transformers_trainer import DrivenTrainer, drive
from stabexp.training import Run


class StabexpCallback(TrainerCallback):
    """Records every update of a Trainer, and in a replay starts it from the fork.

    Pass it to the Trainer as it is made: `Trainer(..., callbacks=[StabexpCallback(run)])`. For one
    that exists already: `callback = StabexpCallback(run)`, `trainer.add_callback(callback)`,
    `callback.attach(trainer)`.

    In a replay nothing is logged, saved or reported, and no progress is shown; evaluations are
    made, because they draw random numbers. Callbacks with `state_dict` and `load_state_dict`, and
    transformers' `ExportableState`, are part of the state.

    Tested with transformers 5.24, accelerate 1.15, peft 0.21 and trl 1.16.
    """

    def __init__(self, run: Run, *, show: Callable[[Any], Any] | None = None) -> None:
        """Take the run that the training function received.

        Args:
            run: The run.
            show: Sample of the dataset → a text, a picture or a mapping of them, for reports on bad
                samples. Without it token ids are decoded by the Trainer's tokenizer.
        """
        self.run = run
        self._show = show
        self._trainer: DrivenTrainer | None = None

    def attach(self, trainer: Trainer) -> None:
        """Let `trainer` drive the run; harmless when it does already.

        Raises:
            NotReplayableError: If the run has another Trainer already.
        """
        if self._trainer is trainer:
            return
        if self._trainer is not None:
            raise NotReplayableError(
                "StabexpCallback: belongs to another Trainer already; one run is one training, so "
                "give the callback to the Trainer whose train() is called"
            )
        self._trainer = drive(trainer, self.run, show=self._show)

    def on_init_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Find the Trainer that is being made; a callback is not told."""
        trainer = _being_made(args)
        if trainer is not None:
            self.attach(trainer)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Hand the Trainer's objects to the run."""
        if self._trainer is None:
            raise NotReplayableError(
                "StabexpCallback: was added when the Trainer existed already, which it cannot "
                "see; pass it as Trainer(callbacks=[StabexpCallback(run)]), or call "
                "callback.attach(trainer) before trainer.train()"
            )
        self._trainer.begin_run()

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Save what is due; in a fork, put its state back first."""
        self.run.begin_step()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Record and judge the update, and stop the Trainer when the run is over."""
        if not self.run.end_step():
            control.should_training_stop = True

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Take every hook back."""
        self.run.close()
        if self._trainer is not None and self._trainer.stabexp.data is not None:
            self._trainer.stabexp.data.remove()


def _being_made(args: TrainingArguments) -> Trainer | None:
    """Return the Trainer with these arguments whose `__init__` is running now."""
    frame = sys._getframe(1)
    while frame is not None:
        made = frame.f_locals.get("self")
        if isinstance(made, Trainer) and made.args is args:
            return made
        frame = frame.f_back  # type: ignore[assignment]
    return None
