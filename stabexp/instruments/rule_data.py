"""The data comes in new, whole passes, and in a range a network can take.

Sample ids say what was meant to come; a digest of each sample says what came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor

from stabexp.instruments.base import Watched
from stabexp.instruments.rule_base import Call, Finding, Rule, place, tensors
from stabexp.state.hashing import parameter_digest

WIDE = 100.0
"""Mean or deviation of an input from which on it should have been scaled."""


class RepeatedBatches(Rule):
    """Samples come again only after the others came, and different ids are different samples."""

    slug: ClassVar[str] = "repeated_batches"

    def __init__(self, *, earlier_ids: Sequence[Sequence[int]] = ()) -> None:
        self._draws: list[tuple[int, ...]] = [tuple(ids) for ids in earlier_ids]
        self._digests: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._repeats: list[tuple[int, int, tuple[int, ...]]] = []
        self._batches = 0
        self._step = 0

    def attach(self, watched: Watched) -> None:
        self._size = watched.dataset_size

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        self._step = step
        self._draws.append(tuple(ids))
        given = [tensor for tensor in tensors(batch) if tensor.numel()]
        if not given or len(ids) < 2 or sum(t.numel() for t in given) < 16:
            return
        if all(bool((t == t.flatten()[0]).all()) for t in given):  # a constant tells nothing
            return
        self._batches += 1
        digest = int(parameter_digest(given))
        known = self._digests.setdefault(digest, (step, tuple(ids)))
        if known[1] != tuple(ids):
            self._repeats.append((step, known[0], tuple(ids)))

    def finding(self) -> Finding | None:
        if len(self._repeats) >= 3 and 4 * len(self._repeats) >= self._batches:
            step, before, ids = self._repeats[0]
            return Finding(
                rule=self.slug,
                step=step,
                place="batch",
                detail=f"the batch of step {step} has other sample ids than that of step {before} "
                f"and the same content, bit for bit; so {len(self._repeats)} of {self._batches} "
                "batches",
                remedy="look at how the dataset turns an index into a sample",
                samples=ids[:16],
            )
        return self._small_part()

    def _small_part(self) -> Finding | None:
        """Tell when a part of the data comes again and again while the rest was never seen."""
        if not self._size:
            return None
        drawn = [sample for ids in self._draws for sample in ids]
        distinct = len(set(drawn))
        # Drawing with replacement, 3 draws per sample seen would mean 94 % of the data was seen.
        if distinct > 0.5 * self._size:
            half = drawn[-(len(drawn) // 2) :]
            late = len(set(half))
            if len(half) < 3 * late or late > 0.5 * self._size:
                return None
            return self._part(late, len(half), half, "certain")
        if len(drawn) < 3 * distinct:
            return None
        return self._part(distinct, len(drawn), drawn, "suspicious")

    def _part(self, distinct: int, draws: int, ids: list[int], strength: Any) -> Finding:
        return Finding(
            rule=self.slug,
            step=self._step,
            place="order of the data",
            detail=f"{draws} draws came from {distinct} of {self._size} samples only: each was "
            f"seen {draws / distinct:.1f} times while the others were left out",
            remedy="restore the position in the data for the interrupted pass only, and start the "
            "next pass from the whole data",
            strength=strength,
            samples=tuple(sorted(set(ids))[:16]),
        )


class InputRange(Rule):
    """What enters the first layer has mean and deviation of about 1."""

    slug: ClassVar[str] = "input_range"
    watches: ClassVar[frozenset[str]] = frozenset(
        {"linear", "matmul", "__matmul__", "addmm", "mm", "bmm", "conv1d", "conv2d", "conv3d"}
        | {"lstm", "gru", "rnn_tanh", "rnn_relu", "batch_norm", "layer_norm", "group_norm"}
        | {"instance_norm", "rms_norm"}
    )

    def __init__(self) -> None:
        self._due = False
        self._step = 0
        self._seen: list[tuple[int, float, float, str]] = []
        self._batches = 0

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        self._step, self._due = step, True
        self._batches += 1

    def called(self, call: Call) -> None:
        x = call.args[0] if call.args else call.kwargs.get("input")
        made = call.result[0] if isinstance(call.result, tuple) else call.result
        if not self._due or not isinstance(x, Tensor) or not isinstance(made, Tensor):
            return
        if not made.requires_grad or x.requires_grad or not x.is_floating_point():
            return  # not the model's first layer
        self._due = False
        if "norm" in call.name or x.numel() < 2:
            return
        wide = x.detach().double()
        mean, deviation = float(wide.mean()), float(wide.std())
        if abs(mean) > WIDE or deviation > WIDE:
            self._seen.append((self._step, mean, deviation, place()))

    def finding(self) -> Finding | None:
        if not self._seen or 2 * len(self._seen) < self._batches:
            return None
        step, mean, deviation, where = self._seen[0]
        return Finding(
            rule=self.slug,
            step=step,
            place=where,
            detail=f"the input of the first layer has mean {mean:.4g} and deviation "
            f"{deviation:.4g}, in {len(self._seen)} of {self._batches} batches",
            remedy="standardise the features with figures of the training data",
            strength="suspicious",
            cure=("standardise_inputs", "on"),
        )
