"""`Run`, the handle a training function receives; a replay is the same function with a forked one.

The loop is the user's. `run.steps(...)` yields batches, `run.log(loss)` names the loss, and between
the two the optimizer boundary measures and, in a replay, changes one thing. When the loop asks for
the next batch after an update, the step is complete: it is recorded, judged, and where due a
checkpoint is taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

import torch
from torch import Tensor, nn

from stabexp import detectors as detection
from stabexp import interventions as changing
from stabexp import monitors as measuring
from stabexp.detectors.good import MARGIN
from stabexp.errors import CheckpointError, NotReplayableError, TrainingError
from stabexp.instruments.base import Instrument, Watched
from stabexp.records import Divergence, StepRecord
from stabexp.state.checkpoints import CheckpointStore
from stabexp.state.snapshot import Snapshot, Stateful, capture, restore
from stabexp.training.boundary import Boundary, step_record
from stabexp.training.changes import Changes
from stabexp.training.data import BatchSource, to_device
from stabexp.training.fork import Fork
from stabexp.training.precision import FORMATS, NumberFormat, autocast, make_scaler
from stabexp.training.settings import RunSettings

PATIENCE = 1024
"""Batches without an update after which a loop is taken for one that never updates."""

HISTORY = 100
"""Losses and gradient norms that the emergency snapshot keeps (source row A1)."""


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
        extra_monitors: Mapping[str, Any] | None = None,
        instruments: Sequence[Instrument] = (),
        judged: bool = True,
    ) -> None:
        """Prepare a run; nothing happens before the training function calls `steps`.

        Args:
            settings: What the training is.
            fork: Where to start instead of at step 0.
            interventions: What to change, besides `settings.interventions`.
            until: One past the last step; None for `settings.steps`.
            save_at: In a replay, the steps before which a checkpoint is saved.
            keep_saving: Save checkpoints at the settings' interval; trials save at `save_at` only.
            checkpoints: Where states are saved; None saves none.
            on_step: Called with every record, on the training thread.
            on_divergence: Called once when a detector fires, with the last records.
            extra_monitors: Monitor name → arguments, besides `settings.monitors`.
            instruments: What watches a replay closely.
            judged: Whether detectors end the run; a scan of single samples is no training.
        """
        self.settings = settings
        self.fork = fork
        self.until = settings.steps if until is None else until
        self.save_at = save_at
        self.keep_saving = keep_saving
        self.checkpoints = checkpoints
        self.step = 0
        """The update being made, from 0."""
        self.position = 0
        """Samples consumed so far."""
        self.divergence: Divergence | None = None
        self.last_record: StepRecord | None = None
        self.dataset_size: int | None = None
        """Samples in one pass over the data; known once `steps` was called."""
        self.dataset: Any = None
        """The map-style dataset; known once `steps` was called."""
        self.used_autocast = False
        """Whether the training function asked for `autocast()`: only then can precision change."""
        self._interventions = (*changing.build(settings.interventions), *interventions)
        self._on_step = on_step
        self._on_divergence = on_divergence
        self._detectors = detection.build(settings.detectors) if judged else ()
        self._instruments = instruments
        self._changes = Changes(self._interventions)
        self._monitors = measuring.build({**settings.monitors, **(extra_monitors or {})})
        self._window = max(detection.history_needed(self._detectors), HISTORY)
        self._history: list[StepRecord] = list(fork.records if fork else ())
        self._objects: dict[str, Stateful | None] = {}
        self._losses: list[Tensor] = []
        self._metrics: dict[str, Tensor] = {}
        self._ids: list[int] = []
        self._loop: Generator[Any, None, None] | None = None
        self._made_scaler = False
        self._clock = time.perf_counter()

    @property
    def device(self) -> torch.device:
        """Where the training runs."""
        return torch.device(self.settings.device)

    @property
    def number_format(self) -> NumberFormat:
        """The precision in force, interventions included."""
        name = self.settings.precision
        for item in self._interventions:
            name = item.precision(name)
        return FORMATS[name]

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
        for instrument in self._instruments:
            instrument.logged(loss)
        self._losses.append(loss.detach().reshape(()))
        for name, value in metrics.items():
            self._metrics[name] = torch.as_tensor(value).detach()

    def steps(
        self,
        data: Any,
        *,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        scheduler: Stateful | None = None,
        scaler: torch.amp.GradScaler | None = None,
        batch_size: int | None = None,
        extra: Mapping[str, Stateful] | None = None,
    ) -> Iterator[Any]:
        """Yield batches until the run is over: its last step, or the step at which it diverged.

        Args:
            data: A map-style dataset, or a DataLoader over one; its batches are tensors or tuples,
                lists and dicts of them, and are moved to the run's device.
            model: The model; its parameters and buffers are part of the state.
            optimizer: Stepped by the loop, once per update, without a closure.
            scheduler: Learning-rate scheduler, stepped by the loop.
            scaler: Gradient scaler, stepped by the loop in place of the optimizer.
            batch_size: Samples per (micro-)batch; None takes the loader's or the settings'.
            extra: Anything else that decides the next step and has a state_dict, by name.

        Raises:
            NotReplayableError: If something here cannot be put back exactly.
        """
        if self._loop is not None:
            raise NotReplayableError("run.steps was called twice; one run is one loop over steps")
        if self._made_scaler and scaler is None:
            raise NotReplayableError(
                "run.steps: run.scaler() made a scaler, which is part of the state; pass scaler="
            )
        self._objects = {
            "model": model,
            "optimizer": optimizer,
            "scheduler": scheduler,
            "scaler": scaler,
            **(extra or {}),
        }
        source = BatchSource(
            data,
            batch_size=batch_size or self.settings.batch_size,
            workers=self.settings.loader_workers,
            seed=self.settings.seed,
        )
        self.dataset, self.dataset_size = source.dataset, len(source.dataset)
        self._loop = self._batches(source)
        return self._loop

    def _batches(self, source: BatchSource) -> Generator[Any, None, None]:
        objects: dict[str, Any] = self._objects
        salt = max((item.shuffle_salt() for item in self._interventions), default=0)
        multiple = max((item.batch_multiple() for item in self._interventions), default=1)
        assert source.batch_size is not None
        size = source.batch_size * multiple
        patience = size * max(PATIENCE, 2 * self.settings.accumulate)
        shown = next((b for i in self._interventions if (b := i.batches()) is not None), ())
        self._begin()
        try:
            self._changes.begin(
                objects["model"], objects["optimizer"], scratch=self.fork is None or self.step == 0
            )
            boundary = self._boundary()
        except BaseException:
            self._changes.end()
            raise
        self._attach_instruments()
        replaced = frozenset[int]().union(*(i.replaced_samples() for i in self._interventions))
        order = source.order(salt=salt, replaced=replaced)
        batches = source.batches(order, position=self.position, size=size, first=shown)
        try:
            boundary.begin(self.step)
            while self.step < self.until and self.divergence is None:
                ids, batch = next(batches)
                self._ids += ids
                yield from self._handed_out(ids, to_device(batch, self.device))
                if boundary.updated:
                    self._finish_step(boundary)
                elif len(self._ids) >= patience:
                    raise TrainingError(
                        f"step {self.step}: {len(self._ids) // size} batches came without an "
                        "update; does the loop call step() on the optimizer given to run.steps?"
                    )
        finally:
            if boundary.updated and self._losses:  # the loop broke off after an update
                self._finish_step(boundary)
            boundary.close()
            self._changes.end()
            for instrument in self._instruments:
                instrument.detach()
            batches.close()  # type: ignore[attr-defined]

    def _boundary(self) -> Boundary:
        objects: dict[str, Any] = self._objects
        return Boundary(
            objects["model"],
            objects["optimizer"],
            scaler=objects["scaler"],
            monitors=self._monitors,
            clip_norm=self._clip_norm(),
            lr_scale=self._lr_scale,
            changes=self._changes,
        )

    def _attach_instruments(self) -> None:
        if not self._instruments:
            return
        objects: dict[str, Any] = self._objects
        known = ("model", "optimizer", "scaler", "scheduler")
        watched = Watched(
            **{name: objects[name] for name in known},
            accumulate=self.settings.accumulate,
            dataset_size=self.dataset_size,
            extra={name: value for name, value in objects.items() if name not in known},
        )
        for instrument in self._instruments:
            instrument.attach(watched)

    def _handed_out(self, ids: Sequence[int], batch: Any) -> Iterator[Any]:
        """Yield one batch, with changes and instruments around the loop's work on it."""
        batch = self._changes.batch_begins(batch)
        begun: list[Instrument] = []
        try:
            for instrument in self._instruments:
                instrument.batch_begins(self.step, ids, batch)
                begun.append(instrument)
            yield batch
        finally:
            for instrument in reversed(begun):
                instrument.batch_ends()
            self._changes.batch_ends()

    def close(self) -> None:
        """End the loop wherever it is: record a last update, and take every hook back."""
        if self._loop is not None:
            self._loop.close()

    def _clip_norm(self) -> float | None:
        norm = self.settings.clip_norm
        for item in self._interventions:
            norm = item.clip_norm(norm)
        return norm

    def _lr_scale(self, step: int) -> float:
        scale = 1.0
        for item in self._interventions:
            scale *= item.lr_scale(step, warmup_steps=self.settings.warmup_steps)
        return scale

    def _begin(self) -> None:
        if self.fork is None:
            if self.keep_saving:
                self._save()
            return
        snapshot = CheckpointStore.reader(self.fork.checkpoints).load(self.fork.step)
        restore(snapshot, self._objects, optional=("scaler",))
        self.step = int(snapshot.extra["step"])
        self.position = int(snapshot.extra["position"])

    def snapshot(self) -> Snapshot:
        """Return a copy of everything that decides the next step."""
        return capture(self._objects, extra={"step": self.step, "position": self.position})

    def _save(self) -> None:
        if self.checkpoints is None:
            return
        finite = self.last_record is None or self.last_record.nonfinite_params == 0
        try:
            self.checkpoints.save(self.step, self.snapshot(), finite=finite)
        except CheckpointError:
            # The store keeps the reason in `failure`. A full disk must not end a healthy training.
            return

    def _finish_step(self, boundary: Boundary) -> None:
        boundary.updated = False  # whatever goes wrong below, this step is not finished twice
        if not self._losses:
            raise TrainingError(
                f"step {self.step}: run.log(loss) was not called, so the step cannot be judged"
            )
        loss = self._losses[0] if len(self._losses) == 1 else torch.stack(self._losses).mean()
        measured = boundary.fetch(loss, self._metrics)
        now = time.perf_counter()
        scaler = self._objects["scaler"]
        record = step_record(
            measured,
            step=self.step,
            position=self.position,
            sample_ids=self._ids,
            loss_scale=scaler.get_scale() if isinstance(scaler, torch.amp.GradScaler) else None,
            seconds=now - self._clock,
        )
        self._clock = now
        self.last_record = record
        self._remember(record)
        if self._on_step is not None:
            self._on_step(record)
        self._losses, self._metrics, self._ids = [], {}, []
        self.step += 1
        self.position += record.batch_size
        for instrument in self._instruments:
            instrument.update_ends(record.step)
        boundary.begin(self.step)
        self.divergence = detection.judge(self._detectors, self._history)
        if self.divergence is not None:
            if self.keep_saving:
                self._save()
            if self._on_divergence is not None:
                self._on_divergence(self.divergence, tuple(self._history))
        elif self._checkpoint_due():
            self._protect_last_good()  # before the save, which removes older ones in the background
            self._save()

    def _remember(self, record: StepRecord) -> None:
        """Keep the run's first record, which says where the loss began, and the latest ones."""
        self._history.append(record)
        if len(self._history) > 2 * self._window:
            del self._history[1 : -self._window]

    def _checkpoint_due(self) -> bool:
        if self.keep_saving:
            return self.step % self.settings.checkpoint_every == 0
        return self.step in self.save_at

    def _protect_last_good(self) -> None:
        """Keep the newest state that looks good from a distance, and those not yet distant."""
        if self.checkpoints is None or not self.keep_saving:
            return
        steps = [info.step for info in self.checkpoints.infos() if info.finite]
        seen = self.step - 2 * self.settings.checkpoint_every
        good = detection.last_good_step(tuple(self._history), seen, steps)
        young = [step for step in steps if step > seen - MARGIN]
        with suppress(CheckpointError, OSError):  # as in `_save`
            self.checkpoints.protect(*young, *(() if good is None else (good,)))
