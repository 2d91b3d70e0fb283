"""What a terminal shows while something runs: one line per finished thing, and what runs now.

On a terminal the last line is live. In a log file only finished things appear, so that it stays
readable.
"""

from __future__ import annotations

import time

from rich.console import Console
from rich.status import Status
from rich.text import Text

from stabexp.records import StepRecord, TrialRecord, TrialSpec
from stabexp.reporting.text import trial_line

STYLES = {
    "cured": "green",
    "diverged": "red",
    "delayed": "red",
    "stalled": "yellow",
    "inconclusive": "dim",
}


class BisectDisplay:
    """Shows a bisect's progress; its methods fit `bisection.trials.Progress`."""

    def __init__(self, console: Console) -> None:
        """Write to `console`; nothing is live when it is not a terminal."""
        self.console = console
        self._running: dict[str, TrialSpec] = {}
        self._phase = ("", "")
        self._done = 0
        self._steps = 0
        self._reused = 0
        self._started = time.monotonic()
        self._status: Status | None = None
        if console.is_terminal:
            self._status = console.status("starting workers")
            self._status.start()

    def phase(self, name: str, left: str) -> None:
        """Say which phase begins and what comes after it."""
        self._phase = (name, left)
        self.console.print(Text(f"[{self._seconds():5.1f} s] {name}", style="bold"))
        self._refresh()

    def started(self, spec: TrialSpec) -> None:
        """Say that a trial runs now."""
        self._running[spec.key] = spec
        self._refresh()

    def finished(self, record: TrialRecord, reused: bool) -> None:
        """Print a finished trial's line."""
        self._running.pop(record.spec.key, None)
        self._done += 1
        self._steps += max(record.steps, 0)
        self._reused += reused
        remark = "  (finished earlier)" if reused else ""
        line = Text("  " + trial_line(record) + remark, style=STYLES[record.outcome])
        if self.console.is_terminal:
            self.console.print(line, overflow="ellipsis", no_wrap=True)
        else:
            self.console.print(line, soft_wrap=True)  # a log file keeps all of it
        self._refresh()

    def note(self, text: str) -> None:
        """Print a remark."""
        self.console.print(Text(f"  {text}", style="italic"), soft_wrap=True)

    def close(self) -> None:
        """Remove the live line."""
        if self._status is not None:
            self._status.stop()

    def _seconds(self) -> float:
        return time.monotonic() - self._started

    def _refresh(self) -> None:
        if self._status is None:
            return
        now = "; ".join(spec.reason for spec in self._running.values()) or "waiting"
        left = f" · then {self._phase[1]}" if self._phase[1] else ""
        self._status.update(f"{self._done} trials, {self._steps} steps · {now}{left}")


class RunDisplay:
    """Shows a training's progress: a line every tenth of it, and the current step when live."""

    def __init__(self, console: Console, *, steps: int | None) -> None:
        """`steps` is how many the training will make; None while it has not told."""
        self.console = console
        self.steps = steps
        self._status: Status | None = None
        if console.is_terminal:
            self._status = console.status("loading")
            self._status.start()
        self._shown = 0.0

    def step(self, record: StepRecord) -> None:
        """Show a finished step."""
        done = record.step + 1
        total = "" if self.steps is None else f"/{self.steps}"
        text = (
            f"step {done:>6}{total}  loss {record.loss:<10.5g} "
            f"lr {record.lr:<9.3g} |g| {record.grad_norm:<9.3g}"
        )
        if record.skipped:
            text += " skipped"
        # Without a known end: every step up to ten, every tenth up to a hundred, and so on.
        every = 10 ** (len(str(done)) - 1) if self.steps is None else max(1, self.steps // 10)
        if done % every == 0 or done == 1:
            self.console.print(f"  {text}")
        if self._status is not None and time.monotonic() - self._shown > 0.1:
            self._shown = time.monotonic()
            self._status.update(text)

    def close(self) -> None:
        """Remove the live line."""
        if self._status is not None:
            self._status.stop()
