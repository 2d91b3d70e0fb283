"""`StabexpCallback` lets a Lightning trainer drive a run: record it, replay it, change one thing.

    trainer = L.Trainer(max_epochs=3, callbacks=[StabexpCallback(run)])

In automatic optimization Lightning hands `optimizer.step` a closure that runs the forward and the
backward pass. Here it runs just before `step`, which is the same for every optimizer that evaluates
it first, so that gradients are there when the update begins. One step is what happens until an
optimizer was stepped: several batches when gradients are accumulated, several optimizers on one
batch in a GAN.

States are taken and put back in `on_train_batch_start`, after the batch was fetched. What is
wrapped is wrapped on the trainer's own objects, for the length of one `fit`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from stabexp.integrations.lightning_checks import check_start, check_trainer, the_loader
from stabexp.integrations.lightning_data import LightningData
from stabexp.integrations.lightning_package import pl
from stabexp.integrations.lightning_quiet import leave_out_the_end, quieten
from stabexp.integrations.lightning_state import TrainerState
from stabexp.tasks.sample_views import Showing
from stabexp.training import Run
from stabexp.training.loader_watch import LoaderWatch

HELD_OUT = ("val", "eval", "test", "held")
"""Words in the names of losses on held-out data."""


class StabexpCallback(pl.Callback):
    """Connects one `Trainer.fit` with a run; give it to the trainer's `callbacks`."""

    def __init__(self, run: Run, *, show: Callable[[Any], Any] | None = None) -> None:
        """Take the run that the training function received.

        Args:
            run: The run.
            show: Sample of the dataset → a text, a picture or a mapping of them, for reports on bad
                samples; None shows what can be guessed.
        """
        self._run = run
        self._show = show
        self._wrapped = ExitStack()
        self._watch: LoaderWatch | None = None
        self._begun = -1
        self._held_out: dict[str, Tensor] = {}
        self._losses: list[Tensor] = []
        self._on_interrupt: Any = signal.default_int_handler

    @property
    def log(self) -> Any:
        """The module's `log`, which Lightning gives to every callback before it opens its loggers.

        So this is the first that a callback sees of its trainer, and the time to be quiet.
        """
        return self._log

    @log.setter
    def log(self, given: Any) -> None:
        self._log = given
        if self._run.replaying:
            quieten(given.__self__.trainer)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Refuse what cannot be replayed, and wait for the loader: a schedule may ask for it."""
        if stage != "fit":
            return
        check_trainer(trainer)
        loop = trainer.fit_loop
        inner = loop._load_combined_loader_states

        def about_to_iterate() -> None:
            inner()
            assert loop._combined_loader is not None
            loader = the_loader(loop._combined_loader.flattened)
            # The caller may use the loader again, in another call of the training function too.
            self._wrapped.callback(vars(loader).update, batch_sampler=loader.batch_sampler)
            self._watch = LoaderWatch(loader, self._run)

        self._wrap(loop, "_load_combined_loader_states", about_to_iterate)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Put ourselves around the work on a batch, its loss and its update."""
        check_start(trainer)
        self._on_interrupt = signal.getsignal(signal.SIGINT)
        epoch_loop = trainer.fit_loop.epoch_loop
        plugin = trainer.precision_plugin
        if pl_module.automatic_optimization:
            self._wrap_batches(epoch_loop.automatic_optimization, place=2)
            self._wrap_training_step(trainer.strategy)
        else:
            self._wrap_batches(epoch_loop.manual_optimization, place=0)
            self._wrap_pre_backward(plugin)
        if getattr(plugin, "scaler", None) is None:  # with one the closure comes first already
            self._wrap_optimizer_step(plugin)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin the run: model, optimizers, schedules and loader are there."""
        assert self._watch is not None
        run, data = self._run, LightningData(trainer, self._watch)
        run.showing = Showing(show=self._show)
        run.begin(
            model=pl_module,
            optimizer=trainer.optimizers,
            scheduler=[config.scheduler for config in trainer.lr_scheduler_configs] or None,
            scaler=getattr(trainer.precision_plugin, "scaler", None),
            extra={"trainer": TrainerState(trainer)},
            data=data,
            total_steps=_total_steps(trainer),
        )
        self._wrap_missing_batches(trainer, data)
        if run.fork is not None:
            data.enter_pass()
            self._wrap_first_pass(trainer.fit_loop.epoch_loop, data)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take note of losses on held-out data: is the model learning its data by heart?"""
        if not trainer.sanity_checking:
            self._held_out = {
                name: value
                for name, value in trainer.callback_metrics.items()
                if "loss" in name.lower() and any(word in name.lower() for word in HELD_OUT)
            }

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Begin a step with its first batch."""
        if self._begun != self._run.step:
            self._run.begin_step()
            self._begun = self._run.step

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """End the step if an optimizer was stepped, and the training if the run is over."""
        if self._run.end_step():
            return
        trainer.should_stop = True
        # It waits for these, but nothing more is to be learned from a run that is over.
        trainer.fit_loop.min_epochs = 0
        trainer.fit_loop.epoch_loop.min_steps = None
        if self._run.replaying:
            self._wrapped.callback(setattr, trainer, "limit_val_batches", trainer.limit_val_batches)
            leave_out_the_end(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Leave the trainer as it was."""
        self._run.close()
        self._wrapped.close()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Leave the trainer as it was; an interrupted run is no error of its code."""
        self._wrapped.close()
        if isinstance(exception, KeyboardInterrupt):
            inner = trainer._teardown

            def torn_down() -> None:
                del trainer._teardown
                inner()
                # Lightning would ignore further interrupts and exit with 1, the code of an error.
                signal.signal(signal.SIGINT, self._on_interrupt)
                raise exception

            trainer._teardown = torn_down  # type: ignore[method-assign]

    def _wrap(self, owner: Any, name: str, function: Callable[..., Any]) -> None:
        setattr(owner, name, function)
        self._wrapped.callback(delattr, owner, name)

    def _wrap_first_pass(self, loop: Any, data: LightningData) -> None:
        """Let the first epoch of a fork begin at its batch."""
        inner = loop.on_run_start

        def on_run_start(fetcher: Any) -> None:
            inner(fetcher)
            if self._begun < 0:
                data.enter_batch(fetcher)

        self._wrap(loop, "on_run_start", on_run_start)

    def _wrap_missing_batches(self, trainer: pl.Trainer, data: LightningData) -> None:
        """Count a batch that is None as used: Lightning passes over it without calling a hook."""
        connector = trainer._logger_connector
        inner = connector.on_batch_start

        def on_batch_start(batch: Any, *args: Any, **kwargs: Any) -> None:
            if batch is None and trainer.training:
                data.use()
            inner(batch, *args, **kwargs)

        self._wrap(connector, "on_batch_start", on_batch_start)

    def _wrap_batches(self, loop: Any, *, place: int) -> None:
        """Put the run around the work on a batch; argument `place` of the loop holds the batch."""
        inner = loop.run

        def run(*args: Any) -> Any:
            arguments = args[place]
            self._losses = []
            with self._run.batch(arguments["batch"]) as arguments["batch"]:
                return inner(*args)

        self._wrap(loop, "run", run)

    def _record(self, loss: Tensor, **others: Tensor) -> None:
        """Log a loss, and those on held-out data with the first step after their validation."""
        held_out, self._held_out = self._held_out, {}
        self._run.log(loss, **held_out, **others)

    def _wrap_training_step(self, strategy: Any) -> None:
        """Log what the module returns: the loss before Lightning divides and scales it."""
        inner = strategy.training_step

        def training_step(*args: Any, **kwargs: Any) -> Any:
            output = inner(*args, **kwargs)
            loss = output.get("loss") if isinstance(output, Mapping) else output
            if isinstance(loss, Tensor):
                self._record(loss)
            return output

        self._wrap(strategy, "training_step", training_step)

    def _wrap_pre_backward(self, plugin: Any) -> None:
        """Log what the module calls `manual_backward` on, before it is scaled.

        Where that is done several times on a batch, each is kept by its place: loss_1, loss_2, …
        """
        inner = plugin.pre_backward

        def pre_backward(tensor: Tensor, module: pl.LightningModule) -> Any:
            self._losses.append(tensor.detach())
            several = self._losses if len(self._losses) > 1 else []
            self._record(tensor, **{f"loss_{n}": loss for n, loss in enumerate(several, start=1)})
            return inner(tensor, module)

        self._wrap(plugin, "pre_backward", pre_backward)

    def _wrap_optimizer_step(self, plugin: Any) -> None:
        """Run forward, backward and clipping before `step` instead of inside it."""

        def optimizer_step(optimizer: Any, model: Any, closure: Any, **kwargs: Any) -> Any:
            result = plugin._wrap_closure(model, optimizer, closure)
            # A module that returns no loss leaves the batch out; without gradients a step is none.
            if result is not None or not model.automatic_optimization or _has_gradient(optimizer):
                optimizer.step(**kwargs)
            return result

        self._wrap(plugin, "optimizer_step", optimizer_step)


def _has_gradient(optimizer: torch.optim.Optimizer) -> bool:
    return any(p.grad is not None for group in optimizer.param_groups for p in group["params"])


def _total_steps(trainer: pl.Trainer) -> int | None:
    """Return how many updates the trainer will make, None when the module decides."""
    if not trainer.lightning_module.automatic_optimization:
        return None
    steps = trainer.estimated_stepping_batches
    return int(steps) if 0 < steps < float("inf") else None
