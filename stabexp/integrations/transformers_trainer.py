"""Trainer's methods, wrapped so that its loop is a run: it starts where the fork is and tells all.

A fork gets Trainer's counters right by resuming from a folder that holds nothing but a step number;
what Trainer would load from it, the run restores itself, at the same point of the loop at which it
was captured.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast

from torch import Tensor
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerState
from transformers.trainer_callback import ExportableState

from stabexp.errors import NotReplayableError
from stabexp.integrations.transformers_data import TrainerData
from stabexp.integrations.transformers_limits import check_replayable
from stabexp.integrations.transformers_progress import Progress, reporting_callbacks
from stabexp.integrations.transformers_shares import whole_and_share
from stabexp.tasks.sample_parts import Decode
from stabexp.tasks.sample_views import Showing
from stabexp.training import Run

_EPOCHS, _UPDATES_IN_EPOCH, _BATCHES_IN_EPOCH = 0, 1, 5
"""Places in what `Trainer.set_initial_training_values` returns."""


def drive(trainer: Trainer, run: Run, *, show: Callable[[Any], Any] | None = None) -> DrivenTrainer:
    """Wrap the methods of this one Trainer, and return it; `show` as in `Run.steps`."""
    driven: Any = trainer
    driven.__class__ = _driven(cast(Any, type(trainer)))
    driven.stabexp = Driving(run, show)
    return cast(DrivenTrainer, driven)


@cache
def _driven(kind: Any) -> type[Trainer]:
    """Return the subclass that wraps; it has the name of the class that it stands for."""
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (DrivenTrainer, kind), names)


class Driving:
    """What a driven Trainer remembers beside its own."""

    def __init__(self, run: Run, show: Callable[[Any], Any] | None = None) -> None:
        self.run = run
        self.show = show
        self.data: TrainerData | None = None
        self.start = (0, 0)
        """Where Trainer thinks that it goes on: epochs done, batches of the next one done."""
        self.unlogged = False
        """Whether a micro-batch is being worked on whose loss is not known yet."""


def _decoder(trainer: Trainer) -> Decode | None:
    """Return what turns the ids of a trainer's tokenizer into text, None where it has none."""
    processing = getattr(trainer, "processing_class", None)
    tokenizer = getattr(processing, "tokenizer", processing)
    decode = getattr(tokenizer, "decode", None)
    return cast(Decode, decode) if callable(decode) else None


def _left_out(name: str) -> Any:
    """Return a method that calls the wrapped one of this name, except in a replay."""

    def method(self: DrivenTrainer, *args: Any, **kwargs: Any) -> Any:
        if self.stabexp.run.replaying:
            return None
        return getattr(super(DrivenTrainer, self), name)(*args, **kwargs)

    method.__name__ = name
    return method


class DrivenTrainer(Trainer):
    """Goes in front of a Trainer's class; see `drive`."""

    stabexp: Driving

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> Any:
        """Train; in a fork, from where it is.

        Raises:
            NotReplayableError: If this training could not be replayed exactly.
        """
        run = self.stabexp.run
        if self.stabexp.data is not None:
            raise NotReplayableError(
                "Trainer.train: was called twice; one run is one training, so give the second one "
                "a Trainer without the StabexpCallback"
            )
        check_replayable(self, resume_from_checkpoint=resume_from_checkpoint, trial=trial)
        if run.replaying:
            for callback in reporting_callbacks(self):
                self.remove_callback(callback)
        if run.fork is None or run.fork.step == 0:
            return super().train(ignore_keys_for_eval=ignore_keys_for_eval)
        with tempfile.TemporaryDirectory(prefix="stabexp-") as folder:
            self._write_start(Path(folder), step=run.fork.step)
            return super().train(
                resume_from_checkpoint=folder, ignore_keys_for_eval=ignore_keys_for_eval
            )

    def begin_run(self) -> None:
        """Hand the objects to the run; Trainer has made all of them, and drawn no batch yet."""
        driving = self.stabexp
        optimizer = self.optimizer
        extra: dict[str, Any] = {"trainer": Progress(self)}
        if getattr(self.args, "sync_ref_model", False):  # TRL moves it after the model
            extra["ref_model"] = vars(self)["ref_model"]
        driving.run.showing = Showing(show=driving.show, decode=_decoder(self))
        driving.run.begin(
            model=self.model_wrapped,
            optimizer=getattr(optimizer, "optimizer", optimizer),
            scheduler=self.lr_scheduler,
            scaler=self.accelerator.scaler,
            extra=extra,
            data=driving.data,
            total_steps=self.state.max_steps,
        )
        if driving.run.replaying and driving.run.until is not None:
            # A scan of single samples may take more steps than the training has.
            self.state.max_steps = max(self.state.max_steps, driving.run.until)
        data = driving.data
        if driving.run.fork is None or data is None or driving.run.fork.step == 0:
            return
        if self._only_shown():
            return
        found = data.place
        if found != driving.start and driving.run.data_plan.multiple == 1:
            raise NotReplayableError(
                f"Trainer: at step {driving.run.fork.step} the run had used {found[1]} batches of "
                f"epoch {found[0]}, but Trainer counts {driving.start[1]} of epoch "
                f"{driving.start[0]}; end no epoch early (should_epoch_stop), and keep batch size "
                "and accumulation as they are for the whole run"
            )

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return Trainer's loader, watched when it is the one that is trained on."""
        loader: DataLoader[Any] = super().get_train_dataloader()
        if self.is_in_train and self.stabexp.data is None:
            self.stabexp.data = TrainerData(loader, self.stabexp.run)
        return loader

    def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Work on one micro-batch, as the run hands it out."""
        driving = self.stabexp
        with driving.run.batch(inputs) as given:
            driving.unlogged = True
            loss = super().training_step(model, given, *args, **kwargs)
            if driving.unlogged:  # this Trainer never calls compute_loss
                driving.unlogged = False
                driving.run.log(loss * self.current_gradient_accumulation_steps)
        return loss

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Compute the loss, and log it as it is: Trainer's own log leaves NaN and Inf out."""
        result = super().compute_loss(model, inputs, *args, **kwargs)
        if self.stabexp.unlogged:  # not in an evaluation
            self.stabexp.unlogged = False
            counted = kwargs.get("num_items_in_batch") is not None
            if isinstance(result, tuple):
                return (self._logged(result[0], counted=counted), *result[1:])
            return self._logged(result, counted=counted)
        return result

    def _logged(self, loss: Tensor, *, counted: bool) -> Tensor:
        """Log the loss of a micro-batch, and return it as Trainer is to go on with it.

        The mean of what is logged in an update is the loss of the update; `counted` says whether
        Trainer told how many items the update has, so that a model could divide by them.
        """
        parts = self.current_gradient_accumulation_steps
        is_share = getattr(self, "loss_is_scaled_for_ga", None)
        if is_share is None:
            is_share = self.compute_loss_func is not None or (
                self.model_accepts_loss_kwargs and counted
            )
        whole, share = whole_and_share(loss, parts) if is_share and parts > 1 else (loss, loss)
        self.stabexp.run.log(whole)
        return share

    def _write_start(self, folder: Path, *, step: int) -> None:
        callbacks = [*self.callback_handler.callbacks, self.control]
        exportable: Any = [each for each in callbacks if isinstance(each, ExportableState)]
        state = {
            "global_step": step,
            "train_batch_size": self._train_batch_size,
            "logging_steps": None,  # these are computed below; None is compared with no argument
            "eval_steps": None,
            "save_steps": None,
            "stateful_callbacks": TrainerState(stateful_callbacks=exportable).stateful_callbacks,
        }
        (folder / "trainer_state.json").write_text(json.dumps(state), "utf-8")

    def set_initial_training_values(self, *args: Any, **kwargs: Any) -> Any:
        """Return how long epochs and training are; a replay ends by its steps."""
        values = list(super().set_initial_training_values(*args, **kwargs))
        run = self.stabexp.run
        if run.replaying:
            values[_EPOCHS] = sys.maxsize
        if run.until is not None and self._only_shown():
            # No end of an epoch may come between batches that belong together.
            values[_UPDATES_IN_EPOCH] = run.until
            values[_BATCHES_IN_EPOCH] = run.until * self.args.gradient_accumulation_steps
        return tuple(values)

    def _only_shown(self) -> bool:
        """Whether every batch of this replay is one that it was told to show: a scan."""
        run = self.stabexp.run
        if run.until is None or not run.data_plan.shown:
            return False
        steps = run.until - (run.fork.step if run.fork is not None else 0)
        return len(run.data_plan.shown) >= steps * self.args.gradient_accumulation_steps

    def _init_training_state(self, max_steps: int, *args: Any, **kwargs: Any) -> Any:
        self.stabexp.start = super()._init_training_state(max_steps, *args, **kwargs)
        self.state.compute_steps(self.args, max_steps)  # type: ignore[no-untyped-call]
        return self.stabexp.start

    def _run_epoch(self, *args: Any, **kwargs: Any) -> Any:
        data = self.stabexp.data
        assert data is not None
        with data.skipping():
            return super()._run_epoch(*args, **kwargs)  # type: ignore[no-untyped-call]

    # What Trainer would load when it goes on: the run restores all of it.

    def _load_from_checkpoint(self, *args: Any, **kwargs: Any) -> None: ...

    def _load_optimizer_and_scheduler(self, *args: Any, **kwargs: Any) -> None: ...

    def _load_scaler(self, *args: Any, **kwargs: Any) -> None: ...

    def _load_rng_state(self, *args: Any, **kwargs: Any) -> None: ...

    def _load_callback_state(self) -> None: ...

    # What a replay leaves out.

    log = _left_out("log")
    log_metrics = _left_out("log_metrics")
    save_metrics = _left_out("save_metrics")
    save_model = _left_out("save_model")
    save_state = _left_out("save_state")
    push_to_hub = _left_out("push_to_hub")
    _save_checkpoint = _left_out("_save_checkpoint")

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        if self.stabexp.run.replaying:
            self.control.should_log = self.control.should_save = False
        super()._maybe_log_save_evaluate(*args, **kwargs)
