"""What a terminal shows while something runs: one line per finished thing, and what runs now.

On a terminal the last line is live. In a log file only finished things appear, so that it stays
readable.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.status import Status
from rich.text import Text

from stabexp.bisection.outlook import Cost, Standing
from stabexp.records import StepRecord, TrialRecord, TrialSpec
from stabexp.reporting import words
from stabexp.reporting.columns import cut, wrap
from stabexp.reporting.pace import Pace
from stabexp.reporting.text import trial_lines

STYLES = {
    "cured": "green",
    "diverged": "red",
    "delayed": "red",
    "stalled": "yellow",
    "inconclusive": "dim",
}
INDENT = " " * 10
"""Below a question's time."""
LISTED = 6
"""Causes that are named in one list."""
WINDOW = 50
"""Steps over which a training's pace is measured."""


class BisectDisplay:
    """Shows a bisect's progress; its methods fit `bisection.trials.Progress`."""

    def __init__(
        self,
        console: Console,
        *,
        warn: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Write to `console`; nothing is live when it is not a terminal.

        Args:
            console: Where to; a quiet one shows nothing.
            warn: Told the warnings among the remarks, where the console is quiet.
            clock: Returns seconds.
        """
        self.console = console
        self.pace = Pace(clock)
        self._warn = warn
        self._clock = clock
        self._running: dict[str, TrialSpec] = {}
        self._start: int | None = None
        self._done = 0
        self._steps = 0
        self._started = clock()
        self._status: Status | None = None
        if console.is_terminal and not console.quiet:
            self._status = console.status("starting workers")
            self._status.start()

    def phase(self, name: str, left: str) -> None:
        """Say which question is asked now."""
        time_ = f"[{self._clock() - self._started:5.1f} s] "
        self._print(name, first=time_, then=INDENT, style="bold")
        self._refresh()

    def standing(self, standing: Standing) -> None:
        """Say what is known by now, and what the rest is expected to take."""
        self.pace.asked(standing)
        if standing.good_step != self._start:
            self._start = standing.good_step
            self._say(
                f"the crash: onset at step {standing.onset:,}, detected at {standing.detected:,}; "
                f"replays start at step {standing.good_step:,}"
            )
        if standing.ruled_out:
            self._say(f"ruled out: {_listed(standing.ruled_out)}")
        if standing.cures:
            self._say(f"cures: {', '.join(standing.cures[-LISTED:])}")
        if len(standing.possible) > 1:
            self._say(f"still possible: {_listed(standing.possible)}")
        self._say(f"left: {self.left()}")
        self._refresh()

    def started(self, spec: TrialSpec) -> None:
        """Say that a trial runs now."""
        self._running[spec.key] = spec
        self.pace.started(spec)
        self._refresh()

    def finished(self, record: TrialRecord, reused: bool) -> None:
        """Print a finished trial's line."""
        self._running.pop(record.spec.key, None)
        self.pace.finished(record, reused)
        self._done += 1
        self._steps += max(record.steps, 0)
        remark = " (finished earlier)" if reused else ""
        lines = trial_lines(record, self.console.width, indent="  ", remark=remark)
        text = Text("\n".join(lines))
        text.highlight_words([f" {words.outcome(record)} "], STYLES[record.outcome])
        self.console.print(text, soft_wrap=True)
        self._refresh()

    def note(self, text: str) -> None:
        """Print a remark; a warning also where nothing else is shown."""
        if self._warn is not None and text.startswith("warning"):
            self._warn(text)
        self._print(text, first="  ", then="    ", style="italic")

    def close(self) -> None:
        """Remove the live line."""
        if self._status is not None:
            self._status.stop()

    def left(self) -> str:
        """Return what is left, in words: "about 6 replays, 320 steps, 4 s"."""
        rest, standing = self.pace.left, self.pace.standing
        if rest is None or standing is None:
            return "not known yet"
        seconds = self.pace.seconds(rest)
        most, time_ = standing.budget_steps, standing.budget_seconds
        about = f"about {_whole(rest.replays, 'replay')}, {_whole(rest.steps, 'step')}"
        if seconds is not None:
            about += f", {words.duration(seconds)}"
        if most is not None and most < rest.steps:
            took = self.pace.seconds(Cost(steps=most))
            about = f"at most {words.count(most, 'step')} (the budget)"
            about += f", about {words.duration(took)}" if took is not None else ""
        elif time_ is not None and (seconds is None or time_ < seconds):
            about = f"at most {words.duration(time_)} (the budget)"
        return about

    def _say(self, text: str) -> None:
        self._print(text, first=INDENT, then=INDENT + "  ", style="")

    def _print(self, text: str, *, first: str, then: str, style: str) -> None:
        for line in wrap(words.one_line(text), self.console.width, first=first, then=then):
            self._line(line, style)

    def _line(self, line: str, style: str) -> None:
        self.console.print(Text(line, style=style), soft_wrap=True)

    def _refresh(self) -> None:
        if self._status is None:
            return
        now = "; ".join(_told(spec) for spec in self._running.values()) or "waiting"
        done = f"{words.count(self._done, 'replay')}, {words.count(self._steps, 'step')} done"
        text = f"{done} · left: {self.left()} · {now}"
        self._status.update(Text(cut(text, self.console.width - 3)))


def _told(spec: TrialSpec) -> str:
    return f"{words.one_line(spec.reason)} (steps {spec.from_step:,} to {spec.until_step - 1:,})"


def _listed(causes: Sequence[str]) -> str:
    named = [cause.replace("_", " ") for cause in causes]
    more = f" and {len(named) - LISTED} more" if len(named) > LISTED else ""
    return ", ".join(named[:LISTED]) + more


def _whole(number: float, noun: str) -> str:
    """Return an expected number without digits that nobody knows."""
    whole = max(1, round(number))
    if whole >= 100:
        scale = 10 ** (len(str(whole)) - 2)
        whole = round(whole / scale) * scale
    return words.count(whole, noun)


class RunDisplay:
    """Shows a training's progress: a line every tenth of it, and the current step when live."""

    def __init__(
        self,
        console: Console,
        *,
        steps: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`steps` is how many the training will make; None while it has not told."""
        self.console = console
        self.steps = steps
        self._clock = clock
        self._times: deque[tuple[int, float]] = deque(maxlen=WINDOW)
        self._status: Status | None = None
        if console.is_terminal and not console.quiet:
            self._status = console.status("loading")
            self._status.start()
        self._shown = 0.0
        self.made = 0
        """Steps shown so far."""

    def step(self, record: StepRecord) -> None:
        """Show a finished step."""
        done = record.step + 1
        self.made += 1
        self._times.append((done, self._clock()))
        live = self._status is not None and self._clock() - self._shown > 0.1
        due = done % self._every(done) == 0 or done == 1
        if not (live or due):
            return
        text = self._text(record, done)
        if due:
            self.console.print(Text(cut(f"  {text}", self.console.width)), soft_wrap=True)
        if self._status is not None and live:
            self._shown = self._clock()
            self._status.update(Text(cut(text, self.console.width - 3)))

    def close(self) -> None:
        """Remove the live line."""
        if self._status is not None:
            self._status.stop()

    def _every(self, done: int) -> int:
        if self.steps is None:  # every step up to ten, every tenth up to a hundred, and so on
            return int(10 ** (len(str(done)) - 1))
        return max(1, self.steps // 10)

    def _text(self, record: StepRecord, done: int) -> str:
        total = "" if self.steps is None else f"/{self.steps}"
        room = 6 if self.steps is None else len(str(self.steps))
        text = (
            f"step {done:>{room}}{total}  loss {record.loss:<9.4g} "
            f"lr {record.lr:<8.3g} |g| {record.grad_norm:<8.3g}"
        )
        if (rate := self._rate()) is not None:
            text += f" {words.figure(float(f'{rate:.2g}'))} steps/s"
            if self.steps is not None and done < self.steps:
                text += f", {words.duration((self.steps - done) / rate)} left"
        return (text + (" skipped" if record.skipped else "")).rstrip()

    def _rate(self) -> float | None:
        """Return steps per second over the last steps, None while there are too few."""
        if len(self._times) < 3:
            return None
        (first, begun), (last, now) = self._times[0], self._times[-1]
        return (last - first) / (now - begun) if now > begun and last > first else None
