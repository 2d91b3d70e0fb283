"""Parameters that need no gradient, and modules in evaluation mode, until they are released."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from stabexp.errors import ConfigError


class Frozen:
    """What is held still for the length of a batch.

    Between two batches all is as the loop made it, so a checkpoint does not know of it.
    """

    def __init__(self) -> None:
        self._parameters: list[Tensor] = []
        self._modules: list[nn.Module] = []

    def hold(self, parameters: Sequence[Tensor]) -> None:
        """Let these need no gradient, and give back what was held before."""
        self.release()
        self._parameters = [p for p in parameters if p.requires_grad]
        for parameter in self._parameters:
            parameter.requires_grad_(False)

    def evaluate(self, module: nn.Module) -> None:
        """Put a module, not those inside it, into evaluation mode."""
        if module.training:
            module.training = False
            self._modules.append(module)

    def release(self) -> None:
        """Give everything back; harmless when nothing is held."""
        for parameter in self._parameters:
            parameter.requires_grad_(True)
        for module in self._modules:
            module.training = True
        self._parameters, self._modules = [], []


def check_parallel(model: nn.Module, section: str) -> None:
    """Refuse a model that waits for a gradient of every parameter.

    Raises:
        ConfigError: If it is a DistributedDataParallel that does not look for unused ones.
    """
    for module in model.modules():
        if isinstance(module, DistributedDataParallel) and not module.find_unused_parameters:
            raise ConfigError(
                f"{section}: DistributedDataParallel waits for a gradient of every parameter; "
                "make it with find_unused_parameters=True"
            )
