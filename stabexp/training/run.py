"""`Run`, the handle a training function receives; a replay is the same function with a forked one.

The loop is the user's. `run.steps(...)` yields batches, `run.log(loss)` names the loss, and between
the two the optimizer boundary measures and, in a replay, changes one thing. When the loop asks for
the next batch after an update, the step is recorded, judged, and where due a checkpoint is taken.

A trainer that owns its loop calls what `steps` is made of: `begin`, `begin_step`, `batch`, `log`
and `end_step`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor

from stabexp import detectors as detection
from stabexp import interventions as changing
from stabexp import monitors as measuring
from stabexp import stabilisers as stabilising
from stabexp.errors import NotReplayableError, TrainingError
from stabexp.instruments.base import Instrument
from stabexp.records import Divergence, StepRecord
from stabexp.state.checkpoints import CheckpointStore
from stabexp.state.plain_values import from_plain
from stabexp.state.snapshot import Snapshot, Stateful, capture, restore
from stabexp.tasks.sample_views import Showing
from stabexp.training.asked import Asked
from stabexp.training.batches import END, batch_length, to_device
from stabexp.training.data_plan import DataPlan
from stabexp.training.feeds import DataPosition, Feed, feed_of
from stabexp.training.fork import Fork
from stabexp.training.hooks import Hooks
from stabexp.training.keeper import Keeper
from stabexp.training.parts import Parts, parts_of
from stabexp.training.precision import FORMATS, NumberFormat, autocast, make_scaler
from stabexp.training.settings import RunSettings
from stabexp.training.step_ledger import PATIENCE, StepLedger


class Run:
    """One training, or one replay of it."""

    def __init__(
        self,
        settings: RunSettings,
        *,
        fork: Fork | None = None,
        interventions: Sequence[changing.Intervention] = (),
        until: int | None = None,
        save_at: Collection[int] = (),
        keep_saving: bool = False,
        checkpoints: CheckpointStore | None = None,
        on_step: Callable[[StepRecord], None] | None = None,
        on_divergence: Callable[[Divergence, Sequence[StepRecord]], None] | None = None,
        on_event: Callable[[Mapping[str, Any]], None] | None = None,
        extra_monitors: Mapping[str, Any] | None = None,
        instruments: Sequence[Instrument] = (),
        judged: bool = True,
    ) -> None:
        """Prepare a run; nothing happens before the training function calls `steps`.

        Args:
            settings: What the training is.
            fork: Where to start instead of at step 0.
            interventions: What to change, besides `settings.interventions`.
            until: One past the last step; None for `settings.steps`, else the trainer decides.
            save_at: In a replay, the steps before which a checkpoint is saved.
            keep_saving: Save checkpoints at the settings' interval; trials save at `save_at` only.
            checkpoints: Where states are saved; None saves none.
            on_step: Called with every record, on the training thread.
            on_divergence: Called once when a detector fires, with the last records.
            on_event: Called with what a stabiliser did: "step", "by", "message" and figures.
            extra_monitors: Monitor name → arguments, besides `settings.monitors`.
            instruments: What watches a replay closely.
            judged: Whether detectors end the run; a scan of single samples is no training.
        """
        self.settings = settings
        self.fork = fork
        self.until = settings.steps if until is None else until
        """One past the last step; None as long as the trainer decides."""
        self.step = 0 if fork is None else fork.step
        """The update being made, from 0."""
        self.position = 0
        """Samples consumed so far."""
        self.divergence: Divergence | None = None
        self.last_record: StepRecord | None = None
        self.planned_steps = settings.steps
        """Updates of the whole training, None while not known."""
        self.dataset: Any = None
        """The map-style dataset; known once the training has begun."""
        self.showing = Showing()
        """How its samples are shown to people, where the training has a way of its own."""
        self.used_autocast = False
        self.notices: list[str] = []
        """What the user should know about this run, in plain sentences."""
        self.replaying = not keep_saving
        """Whether this is a replay, in which a trainer need not log, evaluate or print."""
        every = (*changing.build(settings.interventions, base=settings.base), *interventions)
        self.data_plan = DataPlan.of(every)
        """What is different about the data."""
        self._asked = Asked(settings, every)
        self._on_divergence = on_divergence
        self._on_event = on_event
        self._hooks = Hooks(
            self._asked,
            every,
            monitors=measuring.build(settings.monitors, extra_monitors, base=settings.base),
            instruments=instruments,
            stabilisers=stabilising.build(settings.stabilisers, base=settings.base),
        )
        self._ledger = StepLedger(
            detection.build(settings.detectors, base=settings.base) if judged else (),
            before=fork.records if fork else (),
            on_step=on_step,
        )
        self._keeper = Keeper(
            checkpoints, every=settings.checkpoint_every, keep_saving=keep_saving, save_at=save_at
        )
        self._parts: Parts | None = None
        self._data: DataPosition | None = None
        self._snapshot: Snapshot | None = None
        self._loop: Generator[Any, None, None] | None = None
        self._made_scaler = False

    @property
    def device(self) -> torch.device:
        """Where the training runs."""
        return torch.device(self.settings.device)

    @property
    def dataset_size(self) -> int | None:
        """Samples in one pass over the data; None when not known."""
        return None if self.dataset is None else len(self.dataset)

    @property
    def over(self) -> bool:
        """Whether nothing more is to be done: the last step was made, or the run diverged."""
        return self.divergence is not None or (self.until is not None and self.step >= self.until)

    @property
    def precision_changed(self) -> bool:
        """Whether a change of precision took hold anywhere."""
        return self.used_autocast or self._hooks.format_changed

    @property
    def number_format(self) -> NumberFormat:
        """The precision in force, interventions included."""
        return self._asked.other_format() or FORMATS[self.settings.precision]

    def autocast(self) -> AbstractContextManager[object]:
        """Return the context for the forward pass and the loss, as the precision asks."""
        self.used_autocast = True
        return autocast(self.number_format, self.settings.device)

    def scaler(self) -> torch.amp.GradScaler | None:
        """Return a new dynamic loss scaler when the precision needs one, else None."""
        made = make_scaler(self.number_format, self.settings.device)
        self._made_scaler = made is not None
        return made

    def log(self, loss: Tensor, **metrics: Tensor | float) -> None:
        """Record the loss of the current (micro-)batch; call it once per batch, unscaled.

        Args:
            loss: 0-d tensor, before division by the number of micro-batches.
            metrics: Further 0-d tensors or numbers; the last of a step counts.
        """
        if loss.numel() != 1:
            raise TrainingError(f"run.log: the loss has {loss.numel()} elements, expected one")
        self._hooks.logged(loss)
        others = {name: torch.as_tensor(value).detach() for name, value in metrics.items()}
        self._ledger.log(loss.detach().reshape(()), others)

    @property
    def parts(self) -> Parts:
        """What is trained; known once the training has begun."""
        if self._parts is None:
            raise TrainingError("run.parts: the training has not begun; call run.steps first")
        return self._parts

    def notice(self, text: str) -> None:
        """Tell the user something about this run, once."""
        if text not in self.notices:
            self.notices.append(text)

    def steps(
        self,
        data: Any,
        *,
        model: Any,
        optimizer: Any,
        scheduler: Any = None,
        scaler: torch.amp.GradScaler | None = None,
        batch_size: int | None = None,
        epochs: int | None = None,
        extra: Mapping[str, Stateful] | None = None,
        show: Callable[[Any], Any] | None = None,
    ) -> Iterator[Any]:
        """Yield batches until the run is over: its last step, or the step at which it diverged.

        Args:
            data: A map-style dataset, a DataLoader, or anything that iterates from its beginning;
                batches of tensors, or tuples, lists and dicts of them, come on the run's device.
            model: The model, or several by name; parameters and buffers are part of the state.
            optimizer: Stepped by the loop, once per update, without a closure; or several by name:
                then a step is all that is updated on one batch.
            scheduler: Learning-rate scheduler, or several, stepped by the loop.
            scaler: Gradient scaler, stepped by the loop in place of the optimizer.
            batch_size: Samples per (micro-)batch; None takes the loader's or the settings'.
            epochs: Passes over the data, where the settings do not say how many steps.
            extra: Anything else that decides the next step and has a state_dict, by name.
            show: Sample → text, picture or a mapping of them, for people; None guesses.

        Raises:
            NotReplayableError: If something here cannot be put back exactly.
            TrainingError: If neither `epochs` nor the settings say when to end.
        """
        if self._parts is not None:
            raise NotReplayableError("run.steps was called twice; one run is one loop over steps")
        if self.until is None and epochs is None:
            raise TrainingError(
                "run.steps: when does the training end? set steps: in the experiment, or pass "
                "epochs= to run.steps"
            )
        feed = feed_of(data, self, batch_size=batch_size, epochs=epochs)
        self.showing = Showing(show=show)
        given = {"scheduler": scheduler, "scaler": scaler, "extra": extra}
        self.begin(model=model, optimizer=optimizer, data=feed, **given)
        self._loop = self._yielded(feed)
        return self._loop

    def _yielded(self, feed: Feed) -> Generator[Any, None, None]:
        try:
            feed.start(self.position)
            if not feed.reads_first:
                self.begin_step()
            while not self.over:
                batch = feed.read()
                if batch is END:
                    break
                self.begin_step()
                with self.batch(to_device(batch, self.device)) as changed:
                    yield changed
                self.end_step()
                if not feed.reads_first:
                    self.begin_step()
        finally:
            self._shut()
            feed.close()

    def begin(
        self,
        *,
        model: Any,
        optimizer: Any,
        scheduler: Any = None,
        scaler: torch.amp.GradScaler | None = None,
        extra: Mapping[str, Any] | None = None,
        data: DataPosition | None = None,
        total_steps: int | None = None,
    ) -> None:
        """Tell the run what is trained, from inside a trainer that owns its loop.

        In a replay the data is told where to start; everything else is put back by the first
        `begin_step`.

        Args:
            model, optimizer, scheduler, scaler, extra: As in `steps`.
            data: What watches the data, such as a `LoaderWatch`.
            total_steps: How many updates the trainer will make in all, None if not known.

        Raises:
            NotReplayableError: If something here cannot be put back exactly.
            CheckpointError: If the state to start from cannot be read.
        """
        if self._parts is not None:
            raise NotReplayableError("run.begin was called twice; one run is one training")
        if self._made_scaler and scaler is None:
            raise NotReplayableError(
                "run.steps: run.scaler() made a scaler, which is part of the state; pass scaler="
            )
        self._parts = parts_of(
            model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler, extra=extra
        )
        self._data = data
        self.dataset = None if data is None else data.dataset
        self.planned_steps = total_steps if self.planned_steps is None else self.planned_steps
        self.until = total_steps if self.until is None else self.until
        if self.fork is not None:
            self._snapshot = CheckpointStore.reader(self.fork.checkpoints).load(self.fork.step)
            self.step = int(self._snapshot.extra["step"])
            self.position = int(self._snapshot.extra["position"])
            if data is not None and (state := self._snapshot.extra.get("data")):
                data.load_state_dict(from_plain(state))
        self._hooks.watch_autocast()

    def begin_step(self) -> None:
        """Put a fork's state back, or save the state if due: a step's batches are there, unused."""
        if self._hooks.boundary is None:
            self._open()
        elif self._keeper.waiting:
            self._save()

    def _open(self) -> None:
        self._hooks.change_weights(self.parts)
        if self._snapshot is not None:
            restore(self._snapshot, self.parts.objects, optional=("scaler",))
            self._hooks.stabilising.load_state_dict(self._snapshot.extra.get("stabilisers", {}))
            self._snapshot = None
        elif self._keeper.keep_saving:
            self._save()
        self._hooks.stabilising.plan(steps=self.planned_steps, scaler=self.parts.scaler)
        self._hooks.put_up(
            self.parts,
            step=self.step,
            scratch=self.fork is None or self.step == 0,
            accumulate=self.settings.accumulate,
            samples=self.dataset_size,
        )

    @contextmanager
    def batch(self, batch: Any) -> Iterator[Any]:
        """Put changes and instruments around the trainer's work on one (micro-)batch.

        The value of the `with` is the batch to work on.
        """
        ids = () if self._data is None else self._data.use()
        samples = 0 if self._data is None or self._data.numbers_batches else len(ids)
        self._ledger.add_batch(ids, samples, batch_length(batch))
        with self._hooks.around(batch, step=self.step, ids=ids) as changed:
            yield changed

    def end_step(self) -> bool:
        """Record and judge the step, if an update was made; return whether the run goes on."""
        boundary = self._hooks.boundary
        if boundary is not None and boundary.updated:
            self._finish_step()
        elif self._ledger.batches >= max(PATIENCE, 2 * self.settings.accumulate):
            raise TrainingError(
                f"step {self.step}: {self._ledger.batches} batches came without an update; does "
                "the loop call step() on the optimizer given to run.steps?"
            )
        return not self.over

    def close(self) -> None:
        """End the loop wherever it is: record a last update, and take every hook back."""
        if self._loop is not None:
            self._loop.close()
        self._shut()

    def _shut(self) -> None:
        try:
            if (last := self._hooks.boundary) and last.updated and self._ledger.logged:
                self._finish_step()  # the loop broke off after an update
        finally:
            self._hooks.take_down()

    def seen(self) -> dict[str, Any]:
        """Return what the loop was seen to do, whoever wrote it; empty before the first step."""
        if self.last_record is None:
            return {}
        beyond = {"steps": self.planned_steps, "streamed": self.dataset is None}
        return self._hooks.seen(self.parts, self._ledger.largest) | beyond

    def snapshot(self) -> Snapshot:
        """Return a copy of everything that decides the next step."""
        extra: dict[str, Any] = {"step": self.step, "position": self.position}
        if self._data is not None and (state := self._data.state_dict()):
            extra["data"] = dict(state)
        if stabilisers := self._hooks.stabilising.state_dict():
            extra["stabilisers"] = stabilisers
        return capture(self.parts.objects, extra=extra)

    def _save(self) -> None:
        last = self.last_record
        self._keeper.save(self.step, self.snapshot, finite=not (last and last.nonfinite_params))

    def _finish_step(self) -> None:
        boundary = self._hooks.boundary
        assert boundary is not None
        boundary.updated = False  # whatever goes wrong below, this step is not finished twice
        record = self._ledger.record(
            boundary, self.parts.scaler, step=self.step, position=self.position
        )
        self.last_record = record
        self.step, self.position = self.step + 1, self.position + record.batch_size
        self._hooks.update_ends(record.step)
        boundary.begin(self.step)
        found = self.divergence = self._ledger.judge()
        history = self._ledger.history
        wanted = self._hooks.stabilising.after_step(record, history, tell=self._on_event)
        self._keeper.step_over(self.step, history, diverged=found is not None, wanted=wanted)
        if self._keeper.waiting and self.over:
            self._save()
        if found is not None and self._on_divergence is not None:
            self._on_divergence(found, tuple(history))
