"""Trains one program in a process of its own: to be killed in it, or to run out of memory in it.

    python -m experiments.recovery.alone FAULT SEED ROOT

Prints the run's id; with `out_of_memory` the run recovers by itself (`on_divergence: recover`).
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import torch

from experiments.recovery import bench
from experiments.recovery.padded import MEMORY

ROOM = 0.75
"""Memory that is left for the run, as a share of what its largest batch needs."""


def main() -> None:
    """Train what the command line says."""
    fault, seed, root = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    if fault != "out_of_memory":
        bench.train(fault, seed, root)
        return
    warm = bench.train_padded(seed, root, steps=5)  # what is loaded on first use is no part of it
    assert warm.status == "finished"
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + int(ROOM * MEMORY)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    result = bench.train_padded(seed, root, on_divergence="recover")
    print(json.dumps(bench.facts(result)))


if __name__ == "__main__":
    main()
