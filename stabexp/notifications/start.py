"""Starts the process that tells of a run; whatever goes wrong with it, the work goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from stabexp.errors import StabexpError
from stabexp.notifications.ledger import write_targets
from stabexp.notifications.targets import EventTarget
from stabexp.tracking.uploader import Detached

LOG = "notify.log"
"""In a run directory: what that process itself had to say."""

_CODE = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from stabexp.notifications.notifier import main; sys.exit(main())"
)


def start_notifier(directory: Path, targets: Sequence[EventTarget], *, until: str = "") -> None:
    """Start a process that follows this one and tells of the run; nothing where nobody is told.

    It outlives this process, and Ctrl-C does not reach it. Where nothing shows yet that more is to
    come, `until` names the file in the directory that will be written when it does.
    """
    if not targets:
        return
    # Not by PYTHONPATH: the commands that it runs are to have the environment as it is.
    home = str(Path(__file__).parents[2])
    command = [sys.executable, "-P", "-c", _CODE, home, str(directory.absolute())]
    command += ["--follow", str(os.getpid())]
    if until:
        command += ["--until", until, "--since", repr(time.time())]
    with suppress(OSError, StabexpError):
        write_targets(directory, targets)
        with open(directory / LOG, "ab") as log:
            Detached(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


def unset_names(targets: Sequence[EventTarget]) -> list[str]:
    """Return the environment variables that receivers need and that are not set here."""
    names = dict.fromkeys(name for target in targets for name in target.names)
    return [name for name in names if not os.environ.get(name)]
