"""`python -m experiments.benchmark`."""

from __future__ import annotations

from experiments.benchmark.run import main

if __name__ == "__main__":
    raise SystemExit(main())
