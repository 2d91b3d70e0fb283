"""What one optimizer does in one update: its gradients before, its parameters before and after.

A loop may clip its gradients all at once, group by group, or not at all. What each clipping finds
is kept, and the gradients that none has met are looked at when the update begins. Measurements stay
on the device; the boundary brings those of all optimizers to the host at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stabexp.errors import NotReplayableError
from stabexp.stabilisers.exact_modules import HALF
from stabexp.training.changes_update import UpdateChanges
from stabexp.training.clip_watch import clip_coefficient

SAMPLED = 256
"""Elements of each parameter that the update ratio is measured on."""


@dataclass(frozen=True, slots=True)
class _Look:
    parameters: Sequence[Tensor]
    norms: Tensor
    """L2 norm of each one's gradient, as it was found."""
    scaled: bool
    """Whether the gradients were still multiplied by the loss scale."""


class _Clip(NamedTuple):
    gradient: int
    """Identity of the gradient."""
    version: int
    """What autograd counts for it once it is clipped; every backward pass counts on."""
    product: Tensor
    """What all clippings together multiplied it by, 0-d."""


class UpdateWatch:
    """The updates of one optimizer."""

    def __init__(self, optimizer: torch.optim.Optimizer, changes: UpdateChanges) -> None:
        self.optimizer = optimizer
        self.changes = changes
        self.parameters: list[Tensor] = []
        self.looked: list[Tensor] = []
        """Those whose gradients the last look found, in the order of `gradient_norms`."""
        self.depth = 0
        """How many nested calls of `step` are running: a step may call its parent's step."""
        self.gradient_norms: Tensor | None = None
        """L2 norm of each parameter's gradient before clipping, at the last look."""
        self.measured = False
        """Whether the gradients of the coming update have been looked at."""
        self.under_scaler = True
        """Whether the loop's scaler steps this optimizer, as far as known."""
        self.rate: Any = float("nan")
        """Rate of the first group at the last update: a number or a 0-d tensor."""
        self.distance: Tensor | None = None
        """||after - before||² of the sampled elements in the last update."""
        self.size: Tensor | None = None
        """||before||² of the sampled elements."""
        self._views: list[Tensor] = []
        self._known: set[int] = set()
        self._looks: list[_Look] = []
        self._clips: dict[int, _Clip] = {}
        self._rest: list[Tensor] = []
        self._before: Tensor | None = None
        self.look_again()
        if not self.parameters:
            raise NotReplayableError("run.steps: the optimizer holds no parameters")

    @property
    def device(self) -> torch.device:
        """Where the first parameter is."""
        return self.parameters[0].device

    def look_again(self) -> None:
        """Take note of parameters that were added since."""
        held = [p for group in self.optimizer.param_groups for p in group["params"]]
        if len(held) != len(self.parameters):
            self.parameters = held
            self._known = set(map(id, held))
            self._views = [sample(p) for p in held if p.numel()]

    def forget(self) -> None:
        """Get ready for the next update."""
        self.depth = 0
        self.measured = False
        self.gradient_norms = self.distance = self.size = None
        self._looks, self._clips, self._rest = [], {}, []

    def with_gradient(self) -> list[Tensor]:
        """Return the parameters that have a gradient.

        Raises:
            NotReplayableError: If a gradient is sparse.
        """
        return self._dense([p for p in self.parameters if p.grad is not None])

    def _dense(self, parameters: list[Tensor]) -> list[Tensor]:
        if any(p.grad is not None and p.grad.is_sparse for p in parameters):
            raise NotReplayableError(
                "a gradient is sparse, so its norm and clipping are not defined here; "
                "build the embedding with sparse=False"
            )
        return parameters

    def held_of(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        """Return those of `parameters` that this optimizer updates and that have a gradient.

        Raises:
            NotReplayableError: If a gradient is sparse.
        """
        if any(id(p) not in self._known for p in parameters):
            self.look_again()
        if len(parameters) < len(self.parameters):
            return self._dense(
                [p for p in parameters if p.grad is not None and id(p) in self._known]
            )
        asked = set(map(id, parameters))
        return [p for p in self.with_gradient() if id(p) in asked]

    def clip_comes(self, chosen: Sequence[Tensor], coefficient: Tensor, *, scaled: bool) -> bool:
        """Look at the gradients of `chosen`, which are about to be multiplied by `coefficient`.

        Args:
            chosen: What `held_of` returned.
            coefficient: 0-d tensor.
            scaled: Whether the gradients are still multiplied by the loss scale.

        Returns:
            Whether gradients were looked at that had not been before.
        """
        marks = [self._clips.get(id(p)) for p in chosen] if self._clips else [None] * len(chosen)
        if any(
            mark and mark[:2] != (id(p.grad), _version(p))
            for mark, p in zip(marks, chosen, strict=True)
        ):
            # Gradients came since: a loop that clips after each of several backward passes.
            self._looks, self._clips, marks = [], {}, [None] * len(chosen)
            self.measured = False
        new = [p for p, mark in zip(chosen, marks, strict=True) if mark is None]
        if new:
            self._looks.append(_Look(new, self._norms(new), scaled))
        products: dict[int, Tensor] = {}
        for p, mark in zip(chosen, marks, strict=True):
            product = coefficient
            if mark is not None:
                product = products.setdefault(id(mark.product), mark.product * coefficient)
            self._clips[id(p)] = _Clip(id(p.grad), _version(p) + 1, product)
        return bool(new)

    def look(self, *, scale: Tensor | None) -> list[Tensor]:
        """Set `gradient_norms` to what they were before all clipping.

        Args:
            scale: What a scaler has divided the gradients by since they were clipped, None without.

        Returns:
            The parameters in the order of the norms.
        """
        parameters = self.with_gradient()
        rest = [p for p in parameters if id(p) not in self._clips]
        looks = [*self._looks, _Look(rest, self._norms(rest), False)] if rest else self._looks
        found = [
            look.norms if scale is None or not look.scaled else look.norms / scale.to(self.device)
            for look in looks
        ]
        self.measured = True
        self.gradient_norms = self._norms([]) if not found else torch.cat(found)
        self.looked = [p for look in looks for p in look.parameters]
        return self.looked

    def clip_the_rest(self, limit: float) -> None:
        """Clip the gradients that no clipping of the loop has met since they were unscaled.

        Together, as `torch.nn.utils.clip_grad_norm_` does; call it after `look`.
        """
        scaled = {id(p) for look in self._looks if look.scaled for p in look.parameters}
        parameters = self.with_gradient()
        if self._clips:
            parameters = [p for p in parameters if id(p) not in self._clips or id(p) in scaled]
        gradients = [p.grad for p in parameters if p.grad is not None]
        if not gradients:
            return
        if any(gradient.dtype in HALF for gradient in gradients):
            total = torch.nn.utils.get_total_norm(gradients)  # which computes in half, as clipping
        else:
            found = self._norms(parameters) if self._clips else self.gradient_norms
            assert found is not None
            total = found.norm()
        coefficient = clip_coefficient(limit, total)
        if len({gradient.device for gradient in gradients}) == 1:
            torch._foreach_mul_(gradients, coefficient.to(gradients[0].device))
        else:
            for gradient in gradients:
                gradient.mul_(coefficient.to(gradient.device))
        products = [
            clip.product * coefficient for key, clip in self._clips.items() if key in scaled
        ]
        self._rest = products or [coefficient]

    @property
    def coefficient(self) -> Tensor | None:
        """The smallest factor that clipping multiplied a gradient by; None when nothing clipped."""
        factors = list({id(clip.product): clip.product for clip in self._clips.values()}.values())
        factors += self._rest
        if len(factors) < 2:
            return factors[0] if factors else None
        return torch.stack([factor.to(self.device) for factor in factors]).min()

    def _norms(self, parameters: Sequence[Tensor]) -> Tensor:
        return norms([p.grad for p in parameters if p.grad is not None], self.device)

    def keep_rate(self, lr_scale: float) -> None:
        """Remember the learning rate of the update that is about to be made."""
        rate = self.changes.rate(self.optimizer, lr_scale=lr_scale)
        self.rate = rate.clone() if isinstance(rate, Tensor) else rate  # a schedule writes into it

    def scale_gradients(self, factors: Tensor) -> None:
        """Bring the gradients to `factors` times what they were before all clipping.

        Where clipping has multiplied them by less already they stay. Call it after `look`.

        Args:
            factors: Shape () or one for each of `looked`.
        """
        done = self.coefficient
        wanted = factors if done is None else (factors / done.to(factors.device)).clamp(max=1.0)
        gradients = [p.grad for p in self.looked if p.grad is not None]
        if not gradients:
            return
        if wanted.dim() == 0 and len({gradient.device for gradient in gradients}) == 1:
            torch._foreach_mul_(gradients, wanted.to(gradients[0].device))
        else:
            for gradient, factor in zip(gradients, wanted.expand(len(gradients)), strict=True):
                gradient.mul_(factor.to(gradient.device))
        least = wanted.min()
        self._rest.append(least if done is None else done * least.to(done.device))

    def update_begins(self, *, step: int, lr_scale: float, leave_out: bool = False) -> None:
        """Put the changes in force and remember where the parameters stand."""
        self.keep_rate(lr_scale)
        self.changes.lend(self.optimizer, step=step, lr_scale=lr_scale, leave_out=leave_out)
        self._before = self._sampled()

    def update_made(self) -> None:
        """Take the changes back and see how far the parameters moved."""
        self.changes.take_back(self.optimizer)
        assert self._before is not None
        before = self._before.float()
        self.distance = (self._sampled().float() - before).norm()
        self.size = before.norm()

    def _sampled(self) -> Tensor:
        return torch.cat([view.to(self.device) for view in self._views])


def sample(parameter: Tensor) -> Tensor:
    """Return a view of about `SAMPLED` elements spread over the parameter."""
    detached = parameter.detach()
    if not detached.is_contiguous():
        return detached[(0,) * (detached.dim() - 1)]
    flat = detached.view(-1)
    return flat[:: max(1, flat.numel() // SAMPLED)]


def norms(tensors: Sequence[Tensor], device: torch.device) -> Tensor:
    """Return the L2 norm of each tensor, shape (len(tensors),), in float32 or wider."""
    if not tensors:
        return torch.zeros(1, device=device)
    wide = torch.float64 if tensors[0].dtype == torch.float64 else torch.float32
    found = torch._foreach_norm([tensor.detach() for tensor in tensors], 2, dtype=wide)
    return torch.stack([norm.to(device) for norm in found])


def _version(parameter: Tensor) -> int:
    return 0 if parameter.grad is None else parameter.grad._version
