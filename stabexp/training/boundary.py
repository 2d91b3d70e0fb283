"""The optimizer boundary: where gradients become an update, and everything is measured and changed.

Hooks on the optimizer see every update of any loop, ours or not. Interventions act here, around
the update, so that a schedule cannot overwrite them and the user's objects stay as they are.
Measurements stay on the device until `fetch`, which is the one host sync of a step.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from stabexp.errors import NotReplayableError
from stabexp.monitors import Monitor
from stabexp.monitors.layer_groups import LayerGroups
from stabexp.records import StepRecord
from stabexp.state.hashing import parameter_digest
from stabexp.training.changes import Changes
from stabexp.training.clip_watch import ClipWatch, clip_coefficient
from stabexp.training.measured import Measured, to_host
from stabexp.training.stabilising import Stabilising
from stabexp.training.update_watch import UpdateWatch, norms


class Boundary:
    """Watches, and where asked changes, the updates of a training's optimizers."""

    def __init__(
        self,
        model: nn.Module,
        optimizers: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
        *,
        scaler: torch.amp.GradScaler | None,
        monitors: Sequence[Monitor],
        clip: Callable[[float | None], float | None],
        lr_scale: Callable[[int], float],
        changes: Changes | None = None,
        stabilising: Stabilising | None = None,
    ) -> None:
        """Hook the optimizers; `close` takes every hook back.

        Args:
            model: What the monitors look at.
            optimizers: All that step, the most important first: its rate is the recorded one.
            scaler: The gradient scaler of the loop.
            monitors: What to measure besides the standard figures.
            clip: The norm the loop clips to, None for none → the norm to clip to.
            lr_scale: Step → factor on every learning rate.
            changes: What else is different about an update; it has begun already.
            stabilising: What the run's stabilisers do about an update; they are attached already.
        """
        several = [optimizers] if isinstance(optimizers, torch.optim.Optimizer) else optimizers
        self.scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self.monitors = monitors
        self.clip = clip
        self.lr_scale = lr_scale
        self.clipped_at: float | None = None
        """The norm that the loop clips to by itself, as last seen; None when it does not."""
        self._changes = changes or Changes()
        self._stabilising = stabilising or Stabilising({})
        self._leaves_out = False
        self.step = 0
        self.updated = False
        """True once an update was made, or left out by the scaler, since the last `begin`."""
        self._watches = [UpdateWatch(each, self._changes.update_of(each)) for each in several]
        self._by_optimizer = {id(watch.optimizer): watch for watch in self._watches}
        self._device = self._watches[0].device
        self._layers = LayerGroups(model)
        self._values: dict[str | tuple[str, ...], Tensor] = {}
        self._stepped: list[UpdateWatch] = []
        self._parameter_norms: Tensor | None = None
        self._digest: Tensor | None = None
        for monitor in monitors:
            monitor.attach(model, several)
        self._handles = [
            handle
            for each in several
            for handle in (
                each.register_step_pre_hook(self._before_step),
                each.register_step_post_hook(self._after_step),
            )
        ]
        self._clips = ClipWatch(self._clipping)
        self._by_scaler = False
        self._own_scaler_step = vars(self.scaler).get("step") if self.scaler is not None else None
        if self.scaler is not None:
            self._watch_scaler()

    def close(self) -> None:
        """Take every hook back."""
        for watch in self._watches:
            watch.changes.take_back(watch.optimizer)  # an update may have raised half-way
        self._clips.remove()
        for handle in self._handles:
            handle.remove()
        for monitor in self.monitors:
            monitor.detach()
        if self.scaler is not None:
            del self.scaler.step
            if self._own_scaler_step is not None:  # somebody had exchanged it before us
                self.scaler.step = self._own_scaler_step  # type: ignore[method-assign]

    def begin(self, step: int) -> None:
        """Get ready for the update of `step`."""
        self.step = step
        self.updated = self._leaves_out = False
        self._values = {}
        self._stepped = []
        for watch in self._watches:
            watch.forget()
        for monitor in self.monitors:
            if step % monitor.every == 0:
                monitor.step_begins()

    @property
    def parameters(self) -> list[Tensor]:
        """Every parameter that an optimizer holds, once."""
        if len(self._watches) == 1:
            return self._watches[0].parameters
        return list(dict.fromkeys(p for watch in self._watches for p in watch.parameters))

    def _watch_scaler(self) -> None:
        scaler = self.scaler
        assert scaler is not None
        inner = scaler.step

        def step(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
            watch = self._by_optimizer.get(id(optimizer))
            if watch is not None:
                with suppress(RuntimeError):  # the loop has unscaled already
                    scaler.unscale_(optimizer)
                self._measure_gradients(watch, scale=scaler._scale)
                found = scaler._found_inf_per_device(optimizer).values()
                if any(value.item() for value in found):
                    # The scaler leaves this update out and no hook will run. It syncs here anyway.
                    watch.keep_rate(self.lr_scale(self.step))
                    self._update_over(watch)
            self._by_scaler = True
            try:
                return inner(optimizer, *args, **kwargs)
            finally:
                self._by_scaler = False

        scaler.step = step  # type: ignore[method-assign]

    @torch.no_grad()
    def _clipping(self, parameters: Sequence[Tensor], limit: float, total: Tensor) -> float:
        """The loop is about to clip: measure what it clips, and say what to clip to."""
        allowed, coefficient = limit, clip_coefficient(limit, total)
        met = []
        for watch in self._watches:
            if chosen := watch.held_of(parameters):
                scaled = self._scaled(watch)
                met.append((watch, chosen, scaled))
                if not scaled:
                    allowed = self.clip(limit) or limit
                    # A loop that clips to infinity only asks for the norm.
                    self.clipped_at = limit if limit < math.inf else None
        if allowed != limit:
            coefficient = clip_coefficient(allowed, total)
        for watch, chosen, scaled in met:
            new = watch.clip_comes(chosen, coefficient, scaled=scaled)
            whole = len(parameters) >= len(watch.parameters) and len(chosen) == len(
                watch.with_gradient()
            )
            if new and whole and not scaled:
                self._look_at_gradients(watch, scale=None)
        return allowed

    def _scaled(self, watch: UpdateWatch) -> bool:
        """Whether the gradients are still multiplied by the loss scale."""
        if self.scaler is None or not watch.under_scaler:
            return False
        state = self.scaler._per_optimizer_states[id(watch.optimizer)]
        return not state["found_inf_per_device"]

    @torch.no_grad()
    def _measure_gradients(self, watch: UpdateWatch, *, scale: Tensor | None) -> None:
        """Measure the gradients, and clip those that the loop has not clipped.

        `scale` is what the scaler has divided them by, None without one.
        """
        if watch.measured:
            return  # when the loop clipped all of them
        self._look_at_gradients(watch, scale=scale)
        limit = self.clip(None)
        if limit is not None:
            watch.clip_the_rest(limit)

    def _look_at_gradients(self, watch: UpdateWatch, *, scale: Tensor | None) -> None:
        parameters = watch.look(scale=scale)
        for monitor in self.monitors:
            if self.step % monitor.every == 0:
                self._values |= monitor.before_update(parameters, watch.gradient_norms)  # type: ignore[arg-type]

    @torch.no_grad()
    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if any(value is not None for value in (*args[1:], kwargs.get("closure"))):
            raise NotReplayableError(
                f"{type(optimizer).__name__}.step was given a closure, which evaluates the loss "
                "again inside the update; use an optimizer that is stepped without one"
            )
        watch = self._by_optimizer[id(optimizer)]
        watch.depth += 1
        if watch.depth > 1:
            return
        watch.look_again()
        if not self._by_scaler:
            watch.under_scaler = False
        self._measure_gradients(watch, scale=None)
        leave_out = self._stabilise(watch) if self._stabilising else False
        watch.update_begins(step=self.step, lr_scale=self.lr_scale(self.step), leave_out=leave_out)

    def _stabilise(self, watch: UpdateWatch) -> bool:
        """Let stabilisers scale the gradients; return whether the update is left out."""
        found = watch.gradient_norms
        assert found is not None
        factors = self._stabilising.factors(watch.looked, found)
        if factors is not None:
            watch.scale_gradients(factors)
        leave_out = self._stabilising.skips_update(watch.looked, found)
        self._leaves_out = self._leaves_out or leave_out
        return leave_out

    @torch.no_grad()
    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        watch = self._by_optimizer[id(optimizer)]
        watch.depth -= 1
        if watch.depth:
            return
        watch.update_made()
        self._update_over(watch)

    @torch.no_grad()
    def _update_over(self, watch: UpdateWatch) -> None:
        watch.measured = False
        if watch not in self._stepped:
            self._stepped.append(watch)
        parameters = self.parameters
        self._parameter_norms = norms(parameters, self._device)
        self._digest = parameter_digest(parameters)
        for monitor in self.monitors:
            if self.step % monitor.every == 0:
                self._values |= monitor.after_update(parameters, self._parameter_norms)
        self.updated = True

    def fetch(self, loss: Tensor, metrics: Mapping[str, Tensor]) -> Measured:
        """Bring everything measured since `begin` to the host, in one transfer."""
        assert self._digest is not None
        assert self._parameter_norms is not None
        stepped = self._stepped
        gradients = [w.gradient_norms for w in stepped if w.gradient_norms is not None]
        values: dict[Any, Tensor] = {
            "loss": loss,
            "grad_norm": self._together([part.norm() for part in gradients]),
            "param_norm": self._parameter_norms.norm(),
        }
        coefficients = [w.coefficient for w in stepped if w.coefficient is not None]
        if coefficients:
            values["clip_coefficient"] = torch.stack(
                [each.to(self._device) for each in coefficients]
            ).min()
        moved = [(w.distance, w.size) for w in stepped if w.distance is not None]
        if moved:
            far = self._together([distance for distance, _ in moved])
            values["update_ratio"] = far / self._together(
                [size for _, size in moved if size is not None]
            )
        values |= self._values | dict(metrics)
        if self._stabilising:
            values |= self._stabilising.measured()
        found, digest = to_host(values, self._digest, self._device)
        (loss_bits,) = struct.unpack("=q", struct.pack("=d", found["loss"]))
        grad_norm, param_norm = found.pop("grad_norm"), found.pop("param_norm")
        update_ratio = found.pop("update_ratio", 0.0)
        if grad_norm - grad_norm != 0 or param_norm - param_norm != 0:
            found |= self._where_nonfinite()
        return Measured(
            lr=float(self._rate()),
            loss=found.pop("loss"),
            grad_norm=grad_norm,
            clip_coefficient=found.pop("clip_coefficient", 1.0),
            update_ratio=update_ratio,
            param_norm=param_norm,
            skipped=self._leaves_out
            or self._changes.left_out(self.step)
            or (self.scaler is not None and grad_norm - grad_norm != 0 and update_ratio == 0),
            nonfinite_grads=sum(_count_nonfinite(grad_norm, part) for part in gradients),
            nonfinite_params=_count_nonfinite(param_norm, self._parameter_norms),
            digest=f"{(digest ^ (loss_bits * 31)) & (2**64 - 1):016x}",
            metrics=found,
        )

    def recorded(self, record: StepRecord, history: Sequence[StepRecord]) -> dict[str, float]:
        """Return what monitors make of a record and those before it."""
        found: dict[str, float] = {}
        for monitor in self.monitors:
            if record.step % monitor.every == 0:
                found |= monitor.recorded(record, history)
        return found

    def _where_nonfinite(self) -> dict[str, float]:
        """Count, for each layer, the tensors whose norm is not finite; waits for the device."""
        looked = [(w.looked, w.gradient_norms) for w in self._stepped]
        found = [("nonfinite_weights", self.parameters, self._parameter_norms)]
        found += [("nonfinite_grads", parameters, norms) for parameters, norms in looked]
        counts: dict[str, float] = {}
        for kind, parameters, lengths in found:
            for place in [] if lengths is None else (~torch.isfinite(lengths)).nonzero().tolist():
                layer = self._layers.layer_of(parameters[place[0]])
                name = f"layers/{layer}/{kind}"
                counts[name] = counts.get(name, 0.0) + 1
        return counts

    def _rate(self) -> Any:
        """Return the rate of the first optimizer that stepped, in the order they were given."""
        return next(watch.rate for watch in self._watches if watch in self._stepped)

    def _together(self, parts: Sequence[Tensor]) -> Tensor:
        """Return the L2 norm of what the parts are the norms of."""
        if len(parts) == 1:
            return parts[0]
        whole: Tensor = torch.stack([part.to(self._device) for part in parts]).norm()
        return whole


def _count_nonfinite(total: float, norms: Tensor | None) -> int:
    """Count the tensors with a non-finite norm; syncs only when the total is not finite."""
    if total - total == 0 or norms is None:
        return 0
    return int((~torch.isfinite(norms)).sum())
