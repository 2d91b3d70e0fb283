"""Does what the tutorial says and writes its outputs into it.

    python -m experiments.tutorial --write docs/tutorial.md

Every block of output on the page is what its commands print in a new, empty folder. If the verdict
is another one than the page explains, or the fixed run does not come to its end, nothing is
written.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import stabexp
from experiments.pages.following import Follower, WentWrong, clean_environment
from experiments.pages.pictures import loss_curve, picture, write_picture
from experiments.pages.transcripts import filled
from stabexp.reporting.chart import Marker

PAGE = Path(__file__).parents[1] / "docs" / "tutorial.md"
CAUSE, PLACE = "loss_function", "penalty.py:5"
"""What the verdict has to be."""


def made(page: str, folder: Path) -> tuple[str, str]:
    """Return the page with its output and its picture made anew, in an empty folder.

    Raises:
        WentWrong: If a command or the verdict is not what the page says.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"

    def heard(line: str) -> None:
        print(f"    {line}", end="", flush=True)

    follower = Follower(folder, environment=clean_environment(path), heard=heard)
    text, _ = filled(page, follower, leave_out=("pip install",))
    return text, _checked(follower.here / "stabexp_runs")


def _checked(root: Path) -> str:
    """Return the picture of the runs, which must be what the page tells of them."""
    crashed, slower, longer, fixed = (
        stabexp.load(name, root=root) for name in ("digits-", "slower-", "longer-", "fixed-")
    )
    verdict = crashed.verdict
    if verdict is None or verdict.cause != CAUSE or verdict.culprit is None:
        raise WentWrong(f"the verdict is {verdict and verdict.cause}, where {CAUSE} is meant")
    if PLACE not in verdict.culprit.place:
        raise WentWrong(f"the verdict names {verdict.culprit.place}, where {PLACE} is meant")
    for run, crashes in ((slower, False), (longer, True), (fixed, False)):
        if (run.divergence is not None) != crashes:
            raise WentWrong(f"{run.run_id} {'did not crash' if crashes else 'crashed'}")
    assert crashed.divergence is not None
    curves = [
        loss_curve(crashed.records, name="as it was", kind="diverged", label="1"),
        loss_curve(longer.records, name="a third of the rate", kind="delayed", label="2"),
        loss_curve(fixed.records, name="with the line mended", kind="cured", label="3"),
    ]
    marker = Marker(step=crashed.divergence.onset, label="NaN at step", kind="onset")
    return picture(curves, title="The loss of the three runs", markers=[marker])


def main() -> int:
    """Run from the command line; exit code 1 when the page does not hold."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.tutorial",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--write", type=Path, nargs="?", const=PAGE, help="default: only check")
    given = parser.parse_args()
    file = given.write or PAGE
    started = time.monotonic()
    # The last deliveries to MLflow may still be under way.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            page, drawn = made(file.read_text("utf-8"), Path(folder))
        except WentWrong as error:
            print(f"{file}:{error}", file=sys.stderr)
            return 1
    if given.write:
        write_picture(file.parent / "images" / "tutorial.svg", drawn)
        file.write_text(page, "utf-8")
    print(f"{file}: it holds ({time.monotonic() - started:.0f} s)")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
