"""The process that tells of a run while it trains, is bisected or recovered.

`python -m stabexp.notifications.notifier DIRECTORY --follow PID` goes on until that process has
died or nothing more is to come, and all has been told that can be. What is left then is sent by
`stabexp sync`, by `--resume`, or when the next run below the same root begins.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from stabexp.errors import BusyError, StabexpError
from stabexp.notifications.delivering import LOCK, Teller, deliver_others
from stabexp.notifications.events import settled
from stabexp.notifications.ledger import read_targets
from stabexp.tracking import RunDirectory, exclusive
from stabexp.tracking.processes import identity, is_alive

POLL = 0.5
"""Seconds between two looks at the files."""

GIVE_UP = 600.0
"""Seconds that a receiver is still tried once nothing more is to come."""

OLDEST = 7 * 86_400.0
"""Seconds after which news of another run are not sent any more without being asked for."""


def follow(
    path: Path, *, pid: int, give_up: float = GIVE_UP, until: str = "", since: float = 0.0
) -> int:
    """Tell of a run directory until there is nothing left to come.

    Args:
        path: The run directory.
        pid: The process that works on the run.
        give_up: Seconds to go on trying once nothing more is to come.
        until: A file in the directory; more is to come until it was written after `since`.
        since: Unix seconds.

    Returns:
        How many deliveries are left.
    """
    process = identity(pid)
    with _only_teller(path):
        directory = RunDirectory.open(path)
        teller = Teller(directory, read_targets(path))
        over_since: float | None = None
        while True:
            dead = not is_alive(process)
            over = dead or (_written(path, until, since) and settled(RunDirectory.open(path)))
            teller.notice()
            teller.step()
            if over:
                over_since = over_since or time.monotonic()
                late = time.monotonic() - over_since > give_up
                if teller.done or (late and not teller.busy):
                    return teller.pending()
            else:
                over_since = None
            time.sleep(POLL / 10 if teller.busy else POLL)


def _written(path: Path, name: str, since: float) -> bool:
    try:
        return not name or (path / name).stat().st_mtime >= since
    except OSError:
        return False


def _only_teller(path: Path) -> ExitStack:
    """Wait for any other process that tells of this run."""
    stack = ExitStack()
    while True:
        try:
            stack.enter_context(exclusive(path / LOCK))
            return stack
        except BusyError:
            time.sleep(POLL)


def _others(path: Path) -> None:
    with suppress(StabexpError, OSError):
        oldest = time.time() - OLDEST
        deliver_others(path.parent.parent, but=path.name, newer_than=oldest)


def main() -> int:
    """Run the notifier from the command line."""
    parser = argparse.ArgumentParser(prog="stabexp.notifications.notifier", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--follow", type=int, metavar="PID", required=True)
    parser.add_argument("--give-up", type=float, default=GIVE_UP, metavar="SECONDS")
    parser.add_argument("--until", default="", metavar="FILE")
    parser.add_argument("--since", type=float, default=0.0, metavar="SECONDS")
    arguments = parser.parse_args()
    others = threading.Thread(target=_others, args=(arguments.directory,), daemon=True)
    others.start()
    try:
        left = follow(
            arguments.directory,
            pid=arguments.follow,
            give_up=arguments.give_up,
            until=arguments.until,
            since=arguments.since,
        )
    except StabexpError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    others.join(GIVE_UP)
    if left:
        print(
            f"{left} not delivered; {arguments.directory} says why; stabexp sync tries again",
            file=sys.stderr,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
