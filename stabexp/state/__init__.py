"""What decides the next step, captured and put back bit for bit."""

from __future__ import annotations

from stabexp.state.checkpoints import CheckpointStore
from stabexp.state.fingerprint import differences, fingerprint, set_deterministic
from stabexp.state.hashing import first_difference, parameter_digest, state_hash
from stabexp.state.random_streams import (
    capture_streams,
    isolated_streams,
    restore_streams,
    seed_everything,
)
from stabexp.state.snapshot import Snapshot, Stateful, capture, restore

__all__ = [
    "CheckpointStore",
    "Snapshot",
    "Stateful",
    "capture",
    "capture_streams",
    "differences",
    "fingerprint",
    "first_difference",
    "isolated_streams",
    "parameter_digest",
    "restore",
    "restore_streams",
    "seed_everything",
    "set_deterministic",
    "state_hash",
]
