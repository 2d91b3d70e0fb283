"""Shows the rules one step of a loop that was not written for it, without touching a bit of it.

Three views are joined: the torch functions the loop calls (a function mode between two batches),
the scalar it differentiates (torch.autograd.backward is wrapped for the time of the replay), and
the optimizer's hooks. The rules' own computations are hidden from all three and take no numbers
from a random stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from stabexp.instruments.base import Watched
from stabexp.instruments.rule_base import Call, Rule


class Watch:
    """Passes the events of a replay on to the rules; a rule that fails is left out from then on."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = list(rules)
        self.failures: dict[str, str] = {}
        """Why a rule was left out, by its slug."""
        self.busy = False
        """True while the rules compute: nothing they do is an event."""
        self.functions = True
        """Whether the loop's torch functions can be watched: not in compiled code."""
        self._inside = 0
        self._mode: _Functions | None = None
        self._handles: list[Any] = []
        self._inner: Callable[..., Any] | None = None
        self._patch: Callable[..., Any] | None = None

    def tell(self, event: str, *args: Any, only: Sequence[Rule] | None = None) -> None:
        """Call the rules' method `event`."""
        if self.busy:
            return
        self.busy = True
        try:
            with torch.no_grad():
                for rule in tuple(self.rules if only is None else only):
                    if rule.slug in self.failures:
                        continue
                    try:
                        getattr(rule, event)(*args)
                    except Exception as error:
                        self.failures[rule.slug] = f"{event}: {type(error).__name__}: {error}"
        finally:
            self.busy = False

    def attach(self, watched: Watched) -> None:
        """Hook into the optimizer and into autograd."""
        compiled = getattr(torch._dynamo.eval_frame, "OptimizedModule", None)
        modules = watched.model.modules()
        self.functions = not any(compiled and isinstance(m, compiled) for m in modules)
        self.tell("attach", watched)
        optimizer = watched.optimizer
        self._handles = [
            optimizer.register_step_pre_hook(self._step_begins),
            optimizer.register_step_post_hook(self._step_ends),
        ]
        self._hook_modules()
        self._wrap_backward()

    def _step_begins(self, *_: Any) -> None:
        self._inside += 1  # a subclass whose step calls its parent's runs the hooks twice
        if self._inside == 1:
            self.tell("update_begins")

    def _step_ends(self, *_: Any) -> None:
        self._inside -= 1
        if self._inside == 0:
            self.tell("update_made")

    def _hook_modules(self) -> None:
        wanted = [rule for rule in self.rules if rule.watches_modules]
        if not wanted or not self.functions:
            return

        def entered(module: nn.Module, inputs: Any) -> None:
            self.tell("module_entered", module, inputs, only=wanted)

        def left(module: nn.Module, inputs: Any, output: Any) -> None:
            self.tell("module_left", module, output, only=wanted)

        hooks = nn.modules.module
        self._handles += [
            hooks.register_module_forward_pre_hook(entered),
            hooks.register_module_forward_hook(left),
        ]

    def _wrap_backward(self) -> None:
        inner = torch.autograd.backward
        self._inner = inner

        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            nested = torch._C._current_graph_task_id() != -1  # a checkpoint runs its part again
            if self._inner is None or self.busy or nested:
                return inner(tensors, *args, **kwargs)
            scalars = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
            self.tell("backward_begins", scalars)
            result = inner(tensors, *args, **kwargs)
            self.tell("backward_ends")
            return result

        self._patch = backward
        torch.autograd.backward = backward

    def detach(self) -> None:
        """Take everything back."""
        self.leave()
        for handle in self._handles:
            handle.remove()
        self._handles = []
        # Somebody who wrapped it after us keeps our wrapper, which does nothing from now on.
        if self._inner is not None and torch.autograd.backward is self._patch:
            torch.autograd.backward = self._inner
        self._inner = None
        self.tell("detach")

    def enter(self) -> None:
        """Begin to watch the loop's torch functions."""
        if self.functions and self._mode is None:
            self._mode = _Functions(self)
            self._mode.__enter__()  # type: ignore[no-untyped-call]

    def leave(self) -> None:
        """Stop watching them."""
        if self._mode is not None:
            self._mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            self._mode = None


class _Functions(TorchFunctionMode):
    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch
        self.after = _by_name(watch.rules, "watches")
        self.before = _by_name(watch.rules, "watches_before")

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if self.watch.busy:
            return func(*args, **kwargs)
        if name in self.before:
            self.watch.tell("calling", Call(name, args, kwargs), only=self.before[name])
        result = func(*args, **kwargs)
        if name in self.after:
            self.watch.tell("called", Call(name, args, kwargs, result), only=self.after[name])
        return result


def _by_name(rules: Iterable[Rule], attribute: str) -> dict[str, list[Rule]]:
    names: dict[str, list[Rule]] = {}
    for rule in rules:
        for name in getattr(rule, attribute):
            names.setdefault(name, []).append(rule)
    return names


def parameter_names(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[int, str]:
    """Return the name of every parameter of both, by id; those outside the model by position."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for index, group in enumerate(optimizer.param_groups):
        for position, parameter in enumerate(group["params"]):
            names.setdefault(id(parameter), f"optimizer group {index}, parameter {position}")
    return names
