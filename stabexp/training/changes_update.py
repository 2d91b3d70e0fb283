"""What is different about one update: rates, decay, options and gradients.

The optimizer is lent other parameter groups for the length of its `step`, and other gradients. The
groups that a schedule and the loop know are never written to, so both go on as if nothing had been
changed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from stabexp.errors import ConfigError
from stabexp.interventions import Intervention, OptimizerOptions
from stabexp.stabilisers.exact_modules import longest_match, named
from stabexp.state.module_state import uncompiled
from stabexp.training.changes_state import KeptState

Group = dict[str, Any]


class UpdateChanges:
    """Changes every update of one optimizer while it is made, and takes the changes back."""

    def __init__(self, interventions: Sequence[Intervention]) -> None:
        self._interventions = interventions
        self._holds = any(item.holds_rate() for item in interventions)
        self._sets = any(item.sets_rate() for item in interventions)
        self._keeps = any(item.keeps_optimizer_state() for item in interventions)
        self._decay = math.prod(item.weight_decay_scale() for item in interventions)
        self._gradient = math.prod(item.gradient_scale() for item in interventions)
        self._layers = [rates for item in interventions if (rates := item.layer_rates())]
        self._options: dict[str, Any] = {}
        for item in interventions:
            if isinstance(item, OptimizerOptions):
                self._options |= item.optimizer_options()
        self._left_out = False
        self._held: list[Any] = []
        self._kept: KeptState | None = None
        self._factors: dict[Tensor, float] = {}
        self._own_groups: list[Group] | None = None
        self._lent: list[tuple[Group, Group, Group]] = []
        self._own_gradients: list[tuple[Tensor, Tensor]] = []

    def begin(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Remember how things stand before the first replayed step.

        Raises:
            ConfigError: If the model has no such layer, or the optimizer no such option.
        """
        for option, value in self._options.items():
            _check_option(optimizer, option, value)
        self._factors = {}
        for rates in self._layers:
            for parameter, factor in _by_parameter(model, rates).items():
                self._factors[parameter] = self._factors.get(parameter, 1.0) * factor
        if self._holds:  # a schedule may write into a rate that is a tensor
            self._held = [_own_value(group["lr"]) for group in optimizer.param_groups]
        if self._sets:
            own = [_configured_rate(group) for group in optimizer.param_groups]
            self._held = [rate / own[0] if own[0] > 0 else 1.0 for rate in own]
        if self._keeps:
            self._kept = KeptState(optimizer)

    def rate(self, optimizer: Optimizer, *, lr_scale: float) -> Any:
        """Return the first group's rate for an update, a number or a tensor, layers aside."""
        return self._rate(0, optimizer.param_groups[0], lr_scale)

    def left_out(self, step: int) -> bool:
        """Return whether the update of `step` is not applied at all."""
        return any(item.freezes() or item.skips_update(step) for item in self._interventions)

    def lend(
        self, optimizer: Optimizer, *, step: int, lr_scale: float, leave_out: bool = False
    ) -> None:
        """Put the changed values in force; call it when gradients are unscaled and clipped."""
        if self._kept is not None:
            self._kept.put_back()
        self._left_out = leave_out or self.left_out(step)
        self._lend_groups(optimizer, lr_scale)
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        for parameter in parameters:
            if parameter.grad is None:
                continue
            if self._left_out or self._factors.get(parameter) == 0.0:
                # Without a gradient the optimizer passes a parameter by: no decay, no momentum,
                # and no harm from a gradient that is not finite.
                self._own_gradients.append((parameter, parameter.grad))
                parameter.grad = None
            elif self._gradient != 1.0:
                self._own_gradients.append((parameter, parameter.grad))
                parameter.grad = parameter.grad * self._gradient

    def take_back(self, optimizer: Optimizer) -> None:
        """Give groups and gradients back as the loop knows them; harmless when nothing is lent."""
        if self._own_groups is not None:
            # Some optimizers count or adapt in their groups; what they wrote there is theirs.
            for own, lent, given in [] if self._left_out else self._lent:
                own.update(
                    {
                        key: value
                        for key, value in lent.items()
                        if value is not given.get(key) and key not in ("params", "lr")
                    }
                )
            optimizer.param_groups = self._own_groups
        for parameter, gradient in self._own_gradients:
            parameter.grad = gradient
        self._own_groups, self._lent, self._own_gradients = None, [], []
        if self._kept is not None:
            self._kept.remember()

    def _rate(self, index: int, group: Group, lr_scale: float) -> Any:
        later = 1.0 if self._sets else group["lr"]
        rate = self._held[index] if index < len(self._held) else later
        return rate if lr_scale == 1.0 else rate * lr_scale

    def _lend_groups(self, optimizer: Optimizer, lr_scale: float) -> None:
        plain = lr_scale == 1.0 and self._decay == 1.0 and not self._held and not self._left_out
        if plain and not self._options and not self._factors:
            return
        lent: list[tuple[Group, Group, Group]] = []
        for index, own in enumerate(optimizer.param_groups):
            changed = {**own, "lr": self._rate(index, own, lr_scale)}
            if self._decay != 1.0 and "weight_decay" in own:
                changed["weight_decay"] = own["weight_decay"] * self._decay
            changed |= {name: value for name, value in self._options.items() if name in own}
            lent += [(own, part, dict(part)) for part in self._parts(changed)]
        self._lent = lent
        self._own_groups = optimizer.param_groups
        optimizer.param_groups = [part for _, part, _ in lent]

    def _parts(self, group: Group) -> list[Group]:
        """Split a group by the factors of its layers; the order inside each part stays."""
        parts: dict[float, list[Tensor]] = {}
        for parameter in group["params"]:
            parts.setdefault(self._factors.get(parameter, 1.0), []).append(parameter)
        if not parts:
            return [group]
        return [
            {**group, "params": some, "lr": group["lr"] if factor == 1.0 else group["lr"] * factor}
            for factor, some in parts.items()
        ]


def _by_parameter(model: nn.Module, rates: Mapping[str, float]) -> dict[Tensor, float]:
    for name in rates:
        named(model, name, parameters=True)
    found: dict[Tensor, float] = {}
    for path, parameter in uncompiled(model).named_parameters(remove_duplicate=False):
        match = longest_match(path, rates)
        if match is not None:
            # A tied weight has several names; one that is chosen counts for all of them.
            found[parameter] = min(rates[match], found.get(parameter, math.inf))
    return found


def _check_option(optimizer: Optimizer, option: str, value: Any) -> None:
    for group in optimizer.param_groups:
        if option in group and isinstance(group[option], tuple) == isinstance(value, tuple):
            return
    raise ConfigError(
        f"interventions: {type(optimizer).__name__} has no option '{option}' of this form, so it "
        "cannot be replaced; leave this change out"
    )


def _configured_rate(group: Group) -> float:
    """Return a group's rate as configured; a schedule with a warmup has scaled it down by now."""
    return float(group["initial_lr"] if "initial_lr" in group else group["lr"])


def _own_value(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value
