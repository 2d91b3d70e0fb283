"""Whether every process of a distributed training has the same gradients and the same weights.

Data-parallel training is exact by construction: after the gradients were averaged all processes
hold the same bits. Where they do not, a process was left out of the averaging or started from other
weights, and the copies drift apart without any error. Each process makes a digest of its bits; the
digests are compared.

All processes must measure at the same steps, for they wait for each other: use it only where each
process has this monitor, not with sharded parameters, which differ by design.
Source row B10.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor, nn
from torch import distributed as dist

from stabexp.monitors.base import Measurements, Monitor
from stabexp.state.hashing import parameter_digest


class Ranks(Monitor):
    """Processes whose gradients, or weights, differ from those of the first process."""

    every: int = Field(50, ge=1)
    """Measure on steps divisible by this."""

    def before_update(
        self, parameters: Sequence[nn.Parameter], gradient_norms: Tensor
    ) -> Measurements:
        gradients = [p.grad for p in parameters if p.grad is not None]
        return _compared("ranks/gradients_differ", gradients)

    def after_update(self, parameters: Sequence[Tensor], parameter_norms: Tensor) -> Measurements:
        return _compared("ranks/weights_differ", parameters)


def _compared(name: str, tensors: Sequence[Tensor]) -> Measurements:
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() < 2:
        return {}
    own = parameter_digest(tensors).reshape(1)
    everyone = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, own)
    digests = torch.cat(everyone)
    return {name: (digests != digests[0]).sum()}
