"""Every tensor of a saved state, by name and part, as figures: no model is built, nothing is run.

Works on a checkpoint of ours, whose parts are known, and on any file that torch saved, where names
have to tell them.
Source rows A3, B3.
"""

from __future__ import annotations

import math
import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stabexp.errors import CheckpointError
from stabexp.records.tensors import Part, TensorFigures
from stabexp.state.plain_values import leaves
from stabexp.state.snapshot import Snapshot

SAMPLE = 1 << 20
"""Elements of which the median is taken; of a larger tensor every so many are used."""
BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
OPTIMIZER = ("exp_avg", "exp_avg_sq", "momentum_buffer", "max_exp_avg_sq", "square_avg")


def figures_of_snapshot(snapshot: Snapshot) -> list[TensorFigures]:
    """Return the figures of every tensor of a checkpoint, in its order."""
    return [
        figures(tensor, name=name, part=part)
        for name, part, tensor in _tensors(snapshot)
        if tensor.numel()
    ]


def figures_of_file(path: Path) -> list[TensorFigures]:
    """Return the figures of every tensor in a file that torch or safetensors saved.

    Raises:
        CheckpointError: If it cannot be read without running code that is in it.
    """
    found = []
    for keys, leaf in leaves(_loaded(path)):
        if isinstance(leaf, Tensor) and leaf.layout is torch.strided and leaf.numel():
            found.append(figures(leaf, name=".".join(keys) or "tensor", part=_part(keys)))
    if not found:
        raise CheckpointError(f"{path}: holds no tensor; is it a checkpoint?")
    return found


@torch.no_grad()
def figures(tensor: Tensor, *, name: str, part: Part) -> TensorFigures:
    """Return the figures of one tensor; it may be of any dtype and on any device."""
    flat = tensor.detach().to("cpu").reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    values = flat.double()
    finite = torch.isfinite(values)
    whole = bool(finite.all())
    kept = values if whole else values[finite]
    size = kept.abs()
    sample = size[:: max(1, size.numel() // SAMPLE)]
    there = kept.numel() > 0
    return TensorFigures(
        name=name,
        part=part,
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        nans=0 if whole else int(values.isnan().sum()),
        infs=0 if whole else int(values.isinf().sum()),
        zeros=int((values == 0).sum()),
        mean=float(kept.mean()) if there else math.nan,
        variance=float(kept.var(correction=0)) if there else math.nan,
        largest=float(size.max()) if there else math.nan,
        smallest=float(kept.min()) if there else math.nan,
        typical=float(sample.median()) if there else math.nan,
    )


def _tensors(snapshot: Snapshot) -> Iterator[tuple[str, Part, Tensor]]:
    for name, saved in snapshot.objects.items():
        if saved is None:
            continue
        prefix = "" if name == "model" else f"{name}."
        value = saved["value"]
        if saved["kind"] == "module":
            parameters = set(value["requires_grad"])
            for key, part in (("state", "parameter"), ("buffers", "buffer")):
                for path, leaf in leaves(value[key]):
                    if isinstance(leaf, Tensor):
                        own = ".".join(path)
                        kind: Part = "parameter" if own in parameters else "buffer"
                        yield prefix + own, kind if part == "parameter" else "buffer", leaf
            for path, leaf in leaves(value.get("gradients", {})):
                if isinstance(leaf, Tensor):
                    yield prefix + ".".join(path), "gradient", leaf
        elif saved["kind"] == "optimizer":
            yield from _of_optimizer(name, value)
        elif saved["kind"] == "object":
            for path, leaf in leaves(value):
                if isinstance(leaf, Tensor):
                    yield ".".join((name, *path)), "other", leaf


def _of_optimizer(name: str, value: dict[str, Any]) -> Iterator[tuple[str, Part, Tensor]]:
    names = [known for group in value["names"] for known in group]
    for index, state in value["state"]["state"].items():
        at = int(index)
        known = names[at] if at < len(names) and names[at] else str(index)
        for path, leaf in leaves(state):
            if isinstance(leaf, Tensor) and path != ("step",):
                yield f"{name}[{known.removeprefix('model.')}].{'.'.join(path)}", "optimizer", leaf


def _part(keys: tuple[str, ...]) -> Part:
    last = keys[-1] if keys else ""
    if last in OPTIMIZER:
        return "optimizer"
    if last in BUFFERS:
        return "buffer"
    inside = any("optim" in key.lower() or key in {"state", "param_groups"} for key in keys[:-1])
    words = ("scheduler", "scaler", "rng", "streams")
    if any(word in key.lower() for key in keys for word in words):
        return "other"
    return "optimizer" if inside and last in {"step", *OPTIMIZER} else "parameter"


def _loaded(path: Path) -> Any:
    if path.suffix == ".safetensors":
        try:
            from safetensors.torch import load_file
        except ImportError as error:
            raise CheckpointError(
                f"{path}: reading it takes the package safetensors; pip install safetensors"
            ) from error
        try:
            return load_file(path)
        except Exception as error:  # its own error type is private
            raise CheckpointError(f"{path}: cannot be read: {error}; is it whole?") from error
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path}: holds more than tensors and plain values, which only running its code would "
            "load; save model.state_dict() instead of the model"
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{path}: torch cannot read it: {first}; is it whole?") from error
