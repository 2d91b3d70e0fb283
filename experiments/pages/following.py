"""Does what a page says, in one folder, as somebody at a terminal would.

All commands share a shell's memory: where one changed into a folder or set a variable, the next one
finds it so.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.request
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from experiments.pages.markdown import Block, Command

_ADDRESS = re.compile(r"https?://[\w.:-]+[^\s]*")
READY, STOPS = 120.0, 30.0
"""Seconds in which a command that stays has to show an address, and to end after Ctrl-C."""


class WentWrong(Exception):
    """What a page says did not happen; the message begins with the line."""


@dataclass(frozen=True)
class Done:
    """What a command did."""

    command: Command
    code: int
    out: str
    errors: str


class Follower:
    """Writes the files of a page and types its commands."""

    def __init__(
        self,
        folder: Path,
        *,
        environment: Mapping[str, str],
        seconds: float = 600.0,
        heard: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Begin in an empty folder.

        Args:
            folder: Where to work.
            environment: All of the commands' environment; its PATH finds the tools.
            seconds: The longest that a command may take.
            heard: Told every piece of output, as it comes.
        """
        self._folder = folder
        self._environment = dict(environment)
        self._seconds = seconds
        self._heard = heard
        kept = tempfile.mkdtemp(prefix="page-")
        weakref.finalize(self, shutil.rmtree, kept, ignore_errors=True)
        self._memory = Path(kept) / "shell"

    @property
    def here(self) -> Path:
        """The folder that the last command left."""
        if not self._memory.exists():
            return self._folder
        return Path(shlex.split(self._memory.read_text("utf-8").splitlines()[0])[1])

    def write(self, block: Block) -> None:
        """Write the file that a block is.

        Raises:
            WentWrong: If it would lie outside the folder.
        """
        file = self.here / block.file
        if not file.resolve().is_relative_to(self.here.resolve()):
            raise WentWrong(f"{block.line}: {block.file}: lies outside the folder")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.text, "utf-8")

    def type(self, command: Command) -> Done:
        """Run a command to its end; one that stays is stopped when its page could be read.

        Raises:
            WentWrong: If it takes too long, or its exit code is not the one that the page says.
        """
        memory = shlex.quote(str(self._memory))
        script = (
            f"[ ! -e {memory} ] || . {memory}\n"
            f'trap \'{{ echo "cd $(printf %q "$PWD")"; export -p; }} >{memory}\' EXIT\n'
            f"set -o pipefail\n{command.text}\n"
        )
        process = subprocess.Popen(
            ["bash", "-c", script],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # so that Ctrl-C reaches all that it started, and not us
        )
        pieces: dict[str, list[str]] = {"out": [], "errors": []}
        readers = [
            threading.Thread(target=self._listen, args=(stream, pieces[name]), daemon=True)
            for name, stream in (("out", process.stdout), ("errors", process.stderr))
        ]
        for reader in readers:
            reader.start()
        try:
            if command.stays:
                self._visit(process, command, pieces["out"])
                process.wait(STOPS)
            else:
                process.wait(self._seconds)
        except subprocess.TimeoutExpired:
            what = "did not end after Ctrl-C" if command.stays else "took too long"
            raise WentWrong(f"{command.line}: {command.text}: {what}") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for reader in readers:
            reader.join(5.0)  # what it started and left running may hold the pipe open
        done = Done(command, process.returncode, "".join(pieces["out"]), "".join(pieces["errors"]))
        stopped = command.stays and done.code in {130, -signal.SIGINT}
        if done.code != command.code and not stopped:
            raise WentWrong(
                f"{command.line}: {command.text}: exit code {done.code}, "
                f"where the page says {command.code}"
            )
        return done

    def _listen(self, stream: IO[str], pieces: list[str]) -> None:
        with stream:
            for line in stream:
                pieces.append(line)
                self._heard(line)

    def _visit(self, process: subprocess.Popen[str], command: Command, out: list[str]) -> None:
        """Open the first address that a command shows, then press Ctrl-C."""
        until = time.monotonic() + READY
        while not (found := _ADDRESS.search("".join(out))):
            if process.poll() is not None or time.monotonic() > until:
                raise WentWrong(f"{command.line}: {command.text}: showed no address to open")
            time.sleep(0.2)
        with urllib.request.urlopen(found[0], timeout=30) as page:
            if page.status != 200:
                raise WentWrong(f"{command.line}: {found[0]}: answered {page.status}")
        os.killpg(process.pid, signal.SIGINT)


def clean_environment(path: str) -> dict[str, str]:
    """Return this process's environment with another PATH, and nothing that changes a command.

    A terminal's width and colours would change what is printed; a store named there would take the
    page's runs.
    """
    unwanted = {"MLFLOW_TRACKING_URI", "PYTHONHOME", "COLUMNS", "FORCE_COLOR", "CLICOLOR_FORCE"}
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in unwanted and not name.startswith("STABEXP_")
    }
    return kept | {
        "PATH": path,
        "COLUMNS": "80",
        "NO_COLOR": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),  # small steps are slower on more
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
