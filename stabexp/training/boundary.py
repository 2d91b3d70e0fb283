"""The optimizer boundary: where gradients become an update, and everything is measured and changed.

Hooks on the optimizer see every update of any loop, ours or not. Interventions act here, around
the update, so that a schedule cannot overwrite them and the user's objects stay as they are.
Measurements stay on the device until `fetch`, which is the one host sync of a step.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from stabexp.errors import NotReplayableError
from stabexp.monitors import Monitor
from stabexp.records import StepRecord
from stabexp.state.hashing import parameter_digest
from stabexp.training.changes import Changes

SAMPLED = 256
"""Elements of each parameter that the update ratio is measured on."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What one update showed, on the host."""

    lr: float
    loss: float
    grad_norm: float
    clip_coefficient: float
    update_ratio: float
    param_norm: float
    skipped: bool
    nonfinite_grads: int
    nonfinite_params: int
    digest: str
    metrics: Mapping[str, float]


def step_record(
    measured: Measured,
    *,
    step: int,
    position: int,
    sample_ids: Sequence[int],
    loss_scale: float | None,
    seconds: float,
) -> StepRecord:
    """Return the record of an update from what was measured of it."""
    layers: dict[str, dict[str, float]] = {}
    metrics: dict[str, float] = {}
    for name, value in measured.metrics.items():
        if name.startswith("layers/"):
            layer, _, kind = name.removeprefix("layers/").rpartition("/")
            layers.setdefault(layer, {})[kind] = value
        else:
            metrics[name] = value
    return StepRecord(
        step=step,
        time=time.time(),
        loss=measured.loss,
        lr=measured.lr,
        grad_norm=measured.grad_norm,
        clip_coefficient=measured.clip_coefficient,
        update_ratio=measured.update_ratio,
        param_norm=measured.param_norm,
        loss_scale=loss_scale,
        skipped=measured.skipped,
        nonfinite_grads=measured.nonfinite_grads,
        nonfinite_params=measured.nonfinite_params,
        position=position,
        batch_size=len(sample_ids),
        sample_ids=tuple(sample_ids),
        seconds=seconds,
        digest=measured.digest,
        layers=layers or None,
        metrics=metrics,
    )


class Boundary:
    """Watches, and where asked changes, the updates of one optimizer."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        scaler: torch.amp.GradScaler | None,
        monitors: Sequence[Monitor],
        clip_norm: float | None,
        lr_scale: Callable[[int], float],
        changes: Changes | None = None,
    ) -> None:
        """`lr_scale(step)` is the factor on every learning rate; `clip_norm` None clips nothing.

        `changes` says what else is different about an update; it has begun already.
        """
        self.optimizer = optimizer
        self.scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self.monitors = monitors
        self.clip_norm = clip_norm
        self.lr_scale = lr_scale
        self._changes = (changes or Changes()).update
        self.step = 0
        self.updated = False
        """True once an update was made, or left out by the scaler, since the last `begin`."""
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if not self._parameters:
            raise NotReplayableError("run.steps: the optimizer holds no parameters")
        self._views = [_sample(p) for p in self._parameters if p.numel()]
        self._before: Tensor | None = None
        self._values: dict[str, Tensor] = {}
        self._grad_norms: Tensor | None = None
        self._param_norms: Tensor | None = None
        self._digest: Tensor | None = None
        self._lr: Any = float("nan")
        self._depth = 0  # a step that calls its parent's step runs the hooks twice
        for monitor in monitors:
            monitor.attach(model)
        self._handles = [
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
        ]
        self._scaler_step = self._watch_scaler() if self.scaler is not None else None

    def close(self) -> None:
        """Take every hook back."""
        self._changes.take_back(self.optimizer)  # an update may have raised half-way
        for handle in self._handles:
            handle.remove()
        for monitor in self.monitors:
            monitor.detach()
        if self.scaler is not None:
            del self.scaler.step

    def begin(self, step: int) -> None:
        """Get ready for the update of `step`."""
        self.step = step
        self.updated = False
        self._depth = 0
        self._values = {}

    def _watch_scaler(self) -> Callable[..., Any]:
        scaler = self.scaler
        assert scaler is not None
        inner = scaler.step

        def step(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
            if optimizer is self.optimizer:
                with suppress(RuntimeError):  # the loop has unscaled already
                    scaler.unscale_(optimizer)
                self._measure_gradients()
                if not self._values["grad_norm"].isfinite():
                    # The scaler leaves this update out and no hook will run. It syncs here anyway.
                    self._lr = self._rate()
                    self._measure_parameters()
            return inner(optimizer, *args, **kwargs)

        scaler.step = step  # type: ignore[method-assign]
        return inner

    @torch.no_grad()
    def _measure_gradients(self) -> None:
        parameters = [p for p in self._parameters if p.grad is not None]
        gradients = [p.grad for p in parameters if p.grad is not None]
        if any(gradient.is_sparse for gradient in gradients):
            raise NotReplayableError(
                "a gradient is sparse, so its norm and clipping are not defined here; "
                "build the embedding with sparse=False"
            )
        device = self._parameters[0].device
        norms = _norms(gradients, device)
        total = norms.norm()
        self._grad_norms = norms
        self._values = {"grad_norm": total}
        for monitor in self.monitors:
            if self.step % monitor.every == 0:
                self._values |= monitor.before_update(parameters, norms)
        if self.clip_norm is not None:
            coefficient = (self.clip_norm / (total + 1e-6)).clamp(max=1.0)
            if len({gradient.device for gradient in gradients}) == 1:
                torch._foreach_mul_(gradients, coefficient.to(gradients[0].device))
            else:
                for gradient in gradients:
                    gradient.mul_(coefficient.to(gradient.device))
            self._values["clip_coefficient"] = coefficient

    @torch.no_grad()
    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if len(args) > 1 or kwargs.get("closure") is not None:  # args[0] is the optimizer
            raise NotReplayableError(
                f"{type(optimizer).__name__}.step was given a closure, which evaluates the loss "
                "again inside the update; use an optimizer that is stepped without one"
            )
        self._depth += 1
        if self._depth > 1:
            return
        if self.scaler is None:
            self._measure_gradients()
        self._lr = self._rate()
        self._changes.lend(optimizer, lr_scale=self.lr_scale(self.step))
        self._before = torch.cat([view.to(self._parameters[0].device) for view in self._views])

    @torch.no_grad()
    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._depth -= 1
        if self._depth:
            return
        self._changes.take_back(optimizer)
        after = torch.cat([view.to(self._parameters[0].device) for view in self._views])
        assert self._before is not None
        before = self._before.float()
        self._values["update_ratio"] = (after.float() - before).norm() / before.norm()
        self._measure_parameters()

    def _rate(self) -> Any:
        rate = self._changes.rate(self.optimizer, lr_scale=self.lr_scale(self.step))
        return rate.clone() if isinstance(rate, Tensor) else rate  # a schedule writes into it

    @torch.no_grad()
    def _measure_parameters(self) -> None:
        self._param_norms = _norms(self._parameters, self._parameters[0].device)
        self._values["param_norm"] = self._param_norms.norm()
        self._digest = parameter_digest(self._parameters)
        for monitor in self.monitors:
            if self.step % monitor.every == 0:
                self._values |= monitor.after_update()
        self.updated = True

    def fetch(self, loss: Tensor, metrics: Mapping[str, Tensor]) -> Measured:
        """Bring everything measured since `begin` to the host, in one transfer."""
        device = self._parameters[0].device
        values = {"loss": loss} | self._values | dict(metrics)
        assert self._digest is not None
        floats = torch.stack(
            [value.detach().to(device, torch.float64) for value in values.values()]
        )
        # Doubles travel as their bits, so that the integer digest can come along.
        bits = torch.cat([floats.view(torch.int64), self._digest.reshape(1)]).tolist()
        numbers = struct.unpack(f"={len(values)}d", struct.pack(f"={len(values)}q", *bits[:-1]))
        found = dict(zip(values, numbers, strict=True))
        (loss_bits,) = struct.unpack("=q", struct.pack("=d", found["loss"]))
        grad_norm, param_norm = found.pop("grad_norm"), found.pop("param_norm")
        update_ratio = found.pop("update_ratio", 0.0)
        return Measured(
            lr=float(self._lr),
            loss=found.pop("loss"),
            grad_norm=grad_norm,
            clip_coefficient=found.pop("clip_coefficient", 1.0),
            update_ratio=update_ratio,
            param_norm=param_norm,
            skipped=self._changes.freezes
            or (self.scaler is not None and grad_norm - grad_norm != 0 and update_ratio == 0),
            nonfinite_grads=_count_nonfinite(grad_norm, self._grad_norms),
            nonfinite_params=_count_nonfinite(param_norm, self._param_norms),
            digest=f"{(bits[-1] ^ (loss_bits * 31)) & (2**64 - 1):016x}",
            metrics=found,
        )


def _sample(parameter: Tensor) -> Tensor:
    """Return a view of about `SAMPLED` elements spread over the parameter."""
    detached = parameter.detach()
    if not detached.is_contiguous():
        return detached[(0,) * (detached.dim() - 1)]
    flat = detached.view(-1)
    return flat[:: max(1, flat.numel() // SAMPLED)]


def _norms(tensors: Sequence[Tensor], device: torch.device) -> Tensor:
    """Return the L2 norm of each tensor, shape (len(tensors),), in float32 or wider."""
    if not tensors:
        return torch.zeros(1, device=device)
    wide = torch.float64 if tensors[0].dtype == torch.float64 else torch.float32
    norms = torch._foreach_norm([tensor.detach() for tensor in tensors], 2, dtype=wide)
    return torch.stack([norm.to(device) for norm in norms])


def _count_nonfinite(total: float, norms: Tensor | None) -> int:
    """Count the tensors with a non-finite norm; syncs only when the total is not finite."""
    if total - total == 0 or norms is None:
        return 0
    return int((~torch.isfinite(norms)).sum())
