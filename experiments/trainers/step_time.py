"""How much slower a step is with stabexp, in one's own loop and in other people's trainers.

python -m experiments.trainers.step_time hugging_face|lightning|plain|accelerate [rounds]
"""

from __future__ import annotations

import subprocess
import sys

FRAMEWORKS = {
    "hugging_face": ("step_time_hugging_face",),
    "lightning": ("step_time_lightning",),
    "plain": ("step_time_loops", "plain"),
    "accelerate": ("step_time_loops", "accelerate"),
}
"""Module and first arguments by framework."""


def main(arguments: list[str]) -> int:
    """Measure one framework, in a process of its own."""
    if not arguments or arguments[0] not in FRAMEWORKS:
        print(f"which one? {', '.join(FRAMEWORKS)}", file=sys.stderr)
        return 2
    module, *first = FRAMEWORKS[arguments[0]]
    command = [sys.executable, "-m", f"experiments.trainers.{module}", *first, *arguments[1:]]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
