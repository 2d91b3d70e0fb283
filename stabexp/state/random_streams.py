"""The random streams of Python, NumPy and torch can be captured, put back, and fenced off.

A replay draws the numbers the run drew only if every global stream continues where it stood. The
captured form holds tensors and plain values only, so `torch.load(weights_only=True)` reads it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from stabexp.errors import CheckpointError
from stabexp.state.plain_values import from_plain, to_plain

Stream = torch.Generator | np.random.Generator | np.random.RandomState | random.Random
"""A random stream of one's own, such as a sampler's generator."""


def capture_streams() -> dict[str, Any]:
    """Return where every global stream stands: Python, NumPy's legacy one, torch on each device.

    CUDA streams are there only once CUDA has been initialised: before that nothing was drawn.
    """
    streams = as_state(host_streams())
    streams["numpy"] = to_plain(streams["numpy"], where="numpy")
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        streams["cuda"] = torch.cuda.get_rng_state_all()
    if torch.backends.mps.is_available():
        streams["mps"] = torch.mps.get_rng_state()
    return streams


def host_streams() -> tuple[Any, Any, Any]:
    """Return where Python's, NumPy's and torch's CPU stream stand, in their own cheap forms."""
    return random.getstate(), np.random.get_state(legacy=False), torch.get_rng_state()


def as_state(streams: tuple[Any, Any, Any]) -> dict[str, Any]:
    """Return what `host_streams` found as `restore_streams` takes it, for part of a state_dict."""
    python, numpy, cpu = streams
    return {"python": _python_state(python), "numpy": numpy, "torch": cpu}


def current_state() -> dict[str, Any]:
    """Return where every global stream stands, for part of a state_dict."""
    return capture_streams() | {"numpy": np.random.get_state(legacy=False)}


def restore_streams(streams: Mapping[str, Any]) -> None:
    """Put every global stream back where `capture_streams` found it.

    Raises:
        CheckpointError: If streams of devices were captured that are not here now.
    """
    check_streams(streams)
    random.setstate(_python_tuple(streams["python"]))
    np.random.set_state(from_plain(streams["numpy"]))
    torch.set_rng_state(streams["torch"])
    for index, state in enumerate(streams.get("cuda", ())):
        torch.cuda.set_rng_state(state, index)
    if "mps" in streams:
        torch.mps.set_rng_state(streams["mps"])


def check_streams(streams: Mapping[str, Any]) -> None:
    """Raise CheckpointError when a captured stream has no device here."""
    captured = len(streams.get("cuda", ()))
    here = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if captured > here:
        raise CheckpointError(
            f"random streams: the checkpoint has those of {captured} CUDA device(s), {here} are "
            "visible here; replay where the run ran, or make as many devices visible"
        )
    if "mps" in streams and not torch.backends.mps.is_available():
        raise CheckpointError(
            "random streams: the checkpoint has that of an MPS device, none is here; "
            "replay where the run ran"
        )


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy's legacy stream and torch on every device.

    Raises:
        ValueError: If the seed is not within 0 and 2**63 - 1.
    """
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed: {seed} is out of range; give an integer from 0 to 2**63 - 1")
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


@contextmanager
def isolated_streams() -> Iterator[None]:
    """Leave the global streams as they were, whatever runs inside draws or seeds."""
    streams = capture_streams()
    try:
        yield
    finally:
        restore_streams(streams)


def stream_state(stream: Stream) -> Any:
    """Return where a stream of one's own stands, as plain values and tensors."""
    if isinstance(stream, torch.Generator):
        return stream.get_state()
    if isinstance(stream, random.Random):
        return _python_state(stream.getstate())
    if isinstance(stream, np.random.RandomState):
        return to_plain(stream.get_state(legacy=False), where="state")
    return to_plain(stream.bit_generator.state, where="state")


def set_stream_state(stream: Stream, state: Any) -> None:
    """Put a stream back where `stream_state` found it."""
    if isinstance(stream, torch.Generator):
        stream.set_state(state)
    elif isinstance(stream, random.Random):
        stream.setstate(_python_tuple(state))
    elif isinstance(stream, np.random.RandomState):
        stream.set_state(from_plain(state))
    else:
        stream.bit_generator.state = from_plain(state)


def _python_state(state: tuple[Any, ...]) -> dict[str, Any]:
    version, key, gauss = state
    # One tensor instead of 625 numbers: 40 times faster to hash and to write.
    return {"version": version, "key": torch.tensor(key, dtype=torch.int64), "gauss": gauss}


def _python_tuple(state: Mapping[str, Any]) -> tuple[Any, ...]:
    return state["version"], tuple(state["key"].tolist()), state["gauss"]
