"""All stabilisers of a run as one: factors multiply, the lowest clip counts, any may skip."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from stabexp.records import StepRecord
from stabexp.stabilisers import Stabiliser
from stabexp.state.plain_values import from_plain


class Stabilising:
    """Asks every stabiliser of a run, in the order they are given."""

    def __init__(self, stabilisers: Mapping[str, Stabiliser]) -> None:
        self._by_name = stabilisers
        self._all = tuple(stabilisers.values())
        self._loaded: Mapping[str, Any] = {}
        self._attached: list[Stabiliser] = []

    def __bool__(self) -> bool:
        return bool(self._all)

    def plan(self, *, steps: int | None, scaler: GradScaler | None) -> None:
        """Tell them what the training is to be."""
        for each in self._all:
            each.plan(steps=steps, scaler=scaler)

    def attach(self, model: nn.Module, optimizers: Sequence[Optimizer], *, step: int) -> None:
        """Let them get to know the training, and go on from the state that was loaded."""
        for name, each in self._by_name.items():
            self._attached.append(each)
            each.attach(model, optimizers, step=step)
            if name in self._loaded:
                each.load_state_dict(self._loaded[name])

    def detach(self) -> None:
        """Take everything back."""
        for each in self._attached:
            each.detach()
        self._attached = []

    @contextmanager
    def around(self, step: int) -> Iterator[None]:
        """Put what acts on single batches around the loop's work on one."""
        begun: list[Stabiliser] = []
        try:
            for each in self._all:
                begun.append(each)
                each.batch_begins(step)
            yield
        finally:
            for each in reversed(begun):
                each.batch_ends()

    def logged(self, loss: Tensor) -> None:
        """Tell them of a loss."""
        for each in self._all:
            each.logged(loss)

    def factors(self, parameters: Sequence[Tensor], norms: Tensor) -> Tensor | None:
        """Return the product of all factors, shape () or (len(parameters),); None for none."""
        found = [f for each in self._all if (f := each.factors(parameters, norms)) is not None]
        if not found:
            return None
        product = found[0]
        for other in found[1:]:
            product = product * other
        return product

    def skips_update(self, parameters: Sequence[Tensor], norms: Tensor) -> bool:
        """Return whether one of them leaves the coming update out; all are asked."""
        return sum(each.skips_update(parameters, norms) for each in self._all) > 0

    def clip_norm(self, configured: float | None) -> float | None:
        """Return the largest total gradient norm to allow."""
        for each in self._all:
            configured = each.clip_norm(configured)
        return configured

    def lr_scale(self, step: int) -> float:
        """Return the factor on every learning rate at `step`."""
        scale = 1.0
        for each in self._all:
            scale *= each.lr_scale(step)
        return scale

    def measured(self) -> dict[str, Tensor]:
        """Return what they want recorded."""
        return {key: value for each in self._all for key, value in each.measured().items()}

    def after_step(
        self,
        record: StepRecord,
        history: Sequence[StepRecord],
        *,
        tell: Callable[[Mapping[str, Any]], None] | None,
    ) -> bool:
        """Tell them of a step that is over, and `tell` what they did.

        Returns:
            Whether one of them wants the state saved now.
        """
        wanted = False
        for name, each in self._by_name.items():
            each.after_step(record, history)
            wanted = each.wants_snapshot() or wanted
            for event in each.drain_events():
                if tell is not None:
                    tell({"step": record.step, "by": name, **event})
        return wanted

    def state_dict(self) -> dict[str, Any]:
        """Return the state of each that has one."""
        return {name: state for name, each in self._by_name.items() if (state := each.state_dict())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Keep what a checkpoint holds until they are attached; one that is new starts anew."""
        self._loaded = {name: from_plain(each) for name, each in state.items()}
