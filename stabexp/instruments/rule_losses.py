"""What goes into a loss function is what it takes: logits where it wants logits, shapes that match.

Probabilities in the place of logits train, slowly, to a floor; (B, 1) against (B,) broadcasts to
(B, B) and trains the mean of the targets. Neither raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from stabexp.instruments.rule_base import Call, Finding, Rule, place, tensors

_VIEWS: tuple[str, ...] = (
    "View",
    "Reshape",
    "Squeeze",
    "Unsqueeze",
    "Expand",
    "Permute",
    "Transpose",
    "TBackward",
)
_VIEWS += ("ToCopy", "Clone", "Alias", "Select", "Slice", "Contiguous", "Flatten")


def _made_by(tensor: Tensor, kinds: tuple[str, ...]) -> bool:
    """Return whether a tensor is, but for its shape and dtype, the result of such an operation."""
    node = tensor.grad_fn
    for _ in range(8):
        if node is None:
            return False
        name = type(node).__name__
        if name.startswith(kinds):
            return True
        if not any(view in name for view in _VIEWS):
            return False
        node = node.next_functions[0][0] if node.next_functions else None
    return False


class OftenAtOnePlace(Rule):
    """Counts what was seen, keeps the first, and speaks up when it was seen often enough."""

    enough: ClassVar[int] = 2

    def __init__(self) -> None:
        self._step = 0
        self._ids: tuple[int, ...] = ()
        self._steps: set[int] = set()
        self._first: Finding | None = None

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        self._step = step
        self._ids = tuple(ids)

    def _saw(self, detail: str, remedy: str, **more: Any) -> None:
        self._steps.add(self._step)
        if self._first is None:
            where = place()
            self._first = Finding(
                rule=self.slug, step=self._step, place=where, detail=detail, remedy=remedy, **more
            )

    def finding(self) -> Finding | None:
        return self._first if len(self._steps) >= self.enough else None


class DoubleSoftmax(OftenAtOnePlace):
    """No probabilities where logits are expected."""

    slug: ClassVar[str] = "double_softmax"
    watches: ClassVar[frozenset[str]] = frozenset(
        {"cross_entropy", "log_softmax", "nll_loss", "binary_cross_entropy_with_logits"}
    )

    def called(self, call: Call) -> None:
        x = call.argument(0, "input")
        if not isinstance(x, Tensor) or not x.is_floating_point() or not x.requires_grad:
            return
        if not x.numel():
            return
        low, high = (float(value) for value in x.detach().aminmax())
        if low < 0 or high > 1.001:
            return
        if call.name == "binary_cross_entropy_with_logits":
            if _made_by(x, ("SigmoidBackward", "SoftmaxBackward")):
                self._saw(
                    f"values between {low:.3g} and {high:.3g} that are outputs of a sigmoid go "
                    "into binary_cross_entropy_with_logits, which applies a sigmoid itself",
                    "pass the logits, or use binary_cross_entropy",
                )
            return
        dim = call.argument(1, "dim", -1) if call.name == "log_softmax" else min(1, x.dim() - 1)
        if not isinstance(dim, int) or x.shape[dim] < 2:
            return
        sums = x.detach().float().sum(dim)
        if bool(
            ((sums - 1).abs() <= 4e-3 if x.element_size() < 4 else (sums - 1).abs() <= 1e-3).all()
        ):
            if call.name == "nll_loss":
                self._saw(
                    "probabilities go into nll_loss, which takes log-probabilities, so the loss is "
                    "minus a probability",
                    "pass log_softmax of the logits, or use cross_entropy on the logits",
                )
                return
            self._saw(
                f"all {sums.numel()} rows of {tuple(x.shape)} are probabilities (each sums to 1) "
                f"and go into {call.name} as logits, which applies a softmax again",
                "pass the logits, without the softmax",
            )
        elif call.name == "cross_entropy" and _made_by(x, ("SigmoidBackward",)):
            self._saw(
                f"outputs of a sigmoid go into cross_entropy as logits, so no class can get more "
                f"than {2.71828 / (1.71828 + x.shape[dim]):.2g} of the probability",
                "pass the logits, or use binary_cross_entropy for independent classes",
                strength="suspicious",
            )


_PAIRED: tuple[str, ...] = (
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "gaussian_nll_loss",
)
_PAIRED += ("poisson_nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits")
_ARITHMETIC = ("sub", "__sub__", "rsub", "__rsub__", "subtract", "mul", "__mul__", "__rmul__")


class LossShapesBroadcast(OftenAtOnePlace):
    """Prediction and target have the same shape, value for value."""

    slug: ClassVar[str] = "loss_shapes_broadcast"
    watches: ClassVar[frozenset[str]] = frozenset({*_PAIRED, *_ARITHMETIC})

    def __init__(self) -> None:
        super().__init__()
        self._rows: set[int] = set()
        self._storages: set[int] = set()

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        super().batch_begins(step, ids, batch)
        given = tensors(batch)
        self._rows = {len(ids)} | {tensor.shape[0] for tensor in given if tensor.dim()}
        self._storages = {tensor.untyped_storage().data_ptr() for tensor in given}

    def called(self, call: Call) -> None:
        if len(call.args) < 2 and "target" not in call.kwargs:
            return
        a, b = call.argument(0, "input"), call.argument(1, "target")
        if not isinstance(a, Tensor) or not isinstance(b, Tensor) or a.shape == b.shape:
            return
        shape = torch.broadcast_shapes(a.shape, b.shape)  # type: ignore[no-untyped-call]
        count = shape.numel()
        if count <= max(a.numel(), b.numel()) or min(a.numel(), b.numel()) < 2:
            return
        text = (
            f"shapes {tuple(a.shape)} and {tuple(b.shape)} broadcast to {tuple(shape)} in "
            f"{call.name}: every prediction is compared with every target"
        )
        remedy = "bring both to one shape, for example with prediction.squeeze(-1)"
        if call.name in _PAIRED:
            self._saw(text, remedy)
        elif self._is_pair(a, b) or self._is_pair(b, a):
            known = a.untyped_storage().data_ptr() in self._storages
            known |= b.untyped_storage().data_ptr() in self._storages
            certain = known and "mul" not in call.name
            self._saw(text, remedy, strength="certain" if certain else "suspicious")

    def _is_pair(self, prediction: Tensor, target: Tensor) -> bool:
        """Return whether these are (B, 1) or (B,) from the model and (B,) or (B, 1) from data."""
        if not prediction.requires_grad or target.requires_grad:
            return False
        if self._spreads(prediction, target):
            return True
        if {prediction.dim(), target.dim()} != {1, 2}:
            return False
        column = prediction if prediction.dim() == 2 else target
        rows = prediction.shape[0]
        return column.shape[1] == 1 and target.shape[0] == rows and rows in self._rows

    def _spreads(self, prediction: Tensor, target: Tensor) -> bool:
        """Return whether an extra dimension of one sets all its rows against all of the other's.

        Rows are the first dimension of both: (B, 1, D) and (B, D) give (B, B, D), where no one
        wrote down that every row was to meet every other.
        """
        longer, shorter = sorted((prediction, target), key=lambda t: -t.dim())
        rows = shorter.shape[0] if shorter.dim() > 1 else 0
        return (
            longer.dim() == shorter.dim() + 1
            and rows > 1
            and rows in self._rows
            and longer.shape[0] == rows
            and longer.shape[1] == 1
            and longer.shape[2:] == shorter.shape[1:]
        )
