"""What a monitor promises: it changes no bit, waits for no device, and leaves nothing behind."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from stabexp import monitors as measuring
from stabexp.monitors import Monitor
from stabexp.testing.promises import check_settings
from stabexp.testing.small_training import Net, facts, trained


def check_monitor(
    name: str, args: Mapping[str, Any] | None = None, *, base: Path | None = None
) -> None:
    """Check what every monitor promises.

    Its settings are documented. A training that it watches is bit for bit the one without it. What
    it measures are tensors, 0-d for one name and 1-d for several, and it waits for none of them
    (`.item()`, `float(tensor)`, `if tensor:`). No hook is left in the model.

    Args:
        name: As in the experiment file: `layers`, `zeros.py:Zeros`, `package.module:Zeros`.
        args: Its arguments, also as in the file.
        base: Folder that file names start from; None: the current one.

    Raises:
        AssertionError: If a promise is broken.
        ConfigError: If it cannot be loaded, or an argument is wrong.
    """
    given = dict(args or {})

    def make(arguments: Mapping[str, Any]) -> Monitor:
        (made,) = measuring.build({name: arguments}, base=base)
        return made

    check_settings(make, name, given)
    _check_measurements(make(given), name)
    with tempfile.TemporaryDirectory() as folder:
        alone = trained(Path(folder, "alone"), monitors={})
        watched = trained(Path(folder, "watched"), monitors={name: given}, base=base)
    for one, other in zip(facts(alone.records), facts(watched.records), strict=True):
        assert one == other, f"{name}: changes the training: {other} with it, {one} without"


def _check_measurements(monitor: Monitor, name: str) -> None:
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    parameters = list(model.parameters())
    monitor.attach(model, [optimizer])
    for _ in range(2):
        monitor.step_begins()
        model(torch.randn(3, 4, 8)).pow(2).sum().backward()
        norms = torch.stack([p.grad.norm() for p in parameters if p.grad is not None])
        with _NoWaiting(name):
            measured = dict(monitor.before_update(parameters, norms))
        optimizer.step()
        norms = torch.stack([p.detach().norm() for p in parameters])
        with _NoWaiting(name):
            measured |= monitor.after_update(parameters, norms)
        for names, value in measured.items():
            wanted = () if isinstance(names, str) else (len(names),)
            assert tuple(value.shape) == wanted, (
                f"{name}: {names}: expected a tensor of shape {wanted}, found {tuple(value.shape)}"
            )
    monitor.detach()
    left = [part for part, module in model.named_modules() if module._forward_hooks]
    assert not left, f"{name}: hooks are left in {', '.join(left)}; take them back in detach()"


class _NoWaiting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Fails where a value is fetched from its device: that would be a second sync a step."""

    def __init__(self, name: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._name = name

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func is not torch.ops.aten._local_scalar_dense.default, (
            f"{self._name}: waits for the device (.item(), float(), bool()); return the tensor"
        )
        return func(*args, **(kwargs or {}))
