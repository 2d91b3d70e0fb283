"""One run directory as numbers: what it recorded, how it ended, what was found out about it."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from stabexp.boards.figures import (
    LARGEST,
    LAYER_FIGURES,
    MEASUREMENTS_SHOWN,
    MODEL_FIGURES,
    SMALLEST,
)
from stabexp.boards.layers import shown_layers
from stabexp.boards.live_steps import LiveSteps
from stabexp.boards.metrics import LAYERS_SHOWN, STATES, Sample
from stabexp.errors import StabexpError
from stabexp.records import Divergence, Recovery, Verdict, from_json
from stabexp.tracking import RunDirectory
from stabexp.tracking.journal import read_lines
from stabexp.tracking.processes import is_alive
from stabexp.tracking.run_directory import DIVERGENCE, EVENTS

RECOVERIES = ("running", "recovered", "gave_up")

_T = TypeVar("_T")


class RunView:
    """Follows one run directory; every call of `refresh` reads what is new, and nothing twice."""

    def __init__(
        self, path: Path, *, layers: int = LAYERS_SHOWN, patterns: tuple[str, ...] = ()
    ) -> None:
        """Know nothing yet.

        Args:
            path: The run directory.
            layers: How many layers get series of their own, at most.
            patterns: Shell patterns of which a layer's name must match one; empty for all.
        """
        self.path = path
        self.run_id = path.name
        self.problem = ""
        """Why something of the run could not be read; empty when all could."""
        self.directory: RunDirectory | None = None
        self._most, self._patterns = layers, patterns
        self._kept: dict[Path, tuple[tuple[int, int, int], Any]] = {}
        self.let_go()

    def let_go(self) -> None:
        """Forget the steps and events, which are read anew when they are asked for again."""
        self.steps = LiveSteps(self.path / "steps.jsonl")
        self._events_at = 0
        self._alarms: Counter[str] = Counter()
        self._warnings: Counter[str] = Counter()
        self._actions: Counter[str] = Counter()

    def refresh_state(self) -> None:
        """Read how the run stands, but not its steps."""
        self.problem = ""
        with self._noting():
            self.directory = self._read(
                self.path / "run.json", lambda _: RunDirectory.open(self.path)
            )

    def refresh(self) -> None:
        """Read what is new."""
        self.refresh_state()
        with self._noting():
            self.steps.refresh()
        with self._noting():
            self._read_events()

    @property
    def status(self) -> str:
        """One of `STATES`."""
        return "running" if self.directory is None else self._status(self.directory)

    @property
    def active_since(self) -> float:
        """Unix seconds at which something was last written about the run."""
        files = [self.path / name for name in ("outbox.jsonl", "steps.jsonl", "recovery.json")]
        if (bisect := self._latest_bisect()) is not None:
            files += [bisect / name for name in ("outbox.jsonl", "verdict.json", "trials")]
        times = [0.0]
        for file in files:
            with suppress(OSError):
                times.append(file.stat().st_mtime)
        return max(times)

    @property
    def at_work(self) -> bool:
        """Whether it trains, is being bisected, or recovered."""
        if self.status == "running":
            return True
        bisect = self._latest_bisect()
        return bisect is not None and self._bisect_status(bisect) == "running"

    def samples(self) -> Iterator[Sample]:
        """Yield everything there is to say, as of the latest `refresh`."""
        if self.directory is not None:
            yield from self._about(self.directory)
        yield from self._training()
        yield from self._layers()
        yield from self._happened()
        with self._noting():
            yield from self._divergence()
        with self._noting():
            yield from self._bisect()
        with self._noting():
            yield from self._recovery()
        yield Sample("stabexp_run_readable", float(not self.problem))
        yield Sample("stabexp_run_unread_bytes", self.steps.unread)

    def _about(self, directory: RunDirectory) -> Iterator[Sample]:
        known = directory.manifest
        host = known.writer.rsplit(":", 2)[0]
        params = known.params
        yield Sample(
            "stabexp_run",
            1,
            {
                "experiment": known.experiment,
                "task": params.get("task.name") or params.get("train.name", ""),
                "optimizer": params.get("optimizer.name", ""),
                "precision": params.get("precision", ""),
                "device": params.get("device", ""),
                "user": known.user,
                "host": host,
            },
        )
        yield from _state("stabexp_run_status", self.status, STATES)
        yield Sample("stabexp_run_created_timestamp_seconds", known.created)
        if params.get("steps", "").isdigit():
            yield Sample("stabexp_planned_steps", int(params["steps"]))

    def _training(self) -> Iterator[Sample]:
        steps, latest = self.steps, self.steps.latest
        if not steps.unread:
            yield Sample("stabexp_steps", steps.made)
            yield Sample("stabexp_skipped_updates", steps.skipped)
        if latest is None:
            return
        per_second, samples_per_second = steps.rates
        scale = math.nan if latest.loss_scale is None else latest.loss_scale
        numbers = {
            "stabexp_latest_step": latest.step,
            "stabexp_latest_step_timestamp_seconds": latest.time,
            "stabexp_samples_seen": latest.position + latest.batch_size,
            "stabexp_learning_rate": latest.lr,
            "stabexp_clip_coefficient_ratio": latest.clip_coefficient,
            "stabexp_nonfinite_gradients": latest.nonfinite_grads,
            "stabexp_nonfinite_parameters": latest.nonfinite_params,
            # These may be NaN or Inf and are told all the same: that is the news.
            "stabexp_loss": latest.loss,
            "stabexp_gradient_norm": latest.grad_norm,
            "stabexp_gradient_norm_max": steps.norm_max,
        }
        known = {
            "stabexp_loss_scale": scale,
            "stabexp_update_ratio": latest.update_ratio,
            "stabexp_parameter_norm": latest.param_norm,
            "stabexp_step_duration_seconds": steps.seconds,
            "stabexp_steps_per_second": per_second,
            "stabexp_samples_per_second": samples_per_second,
            "stabexp_loss_median": steps.loss_median,
            "stabexp_gradient_norm_median": steps.norm_median,
        }
        for name, value in numbers.items():
            yield Sample(name, value)
        for name, value in known.items():
            if not math.isnan(value):
                yield Sample(name, value)
        others = sorted(name for name in steps.figures if name not in MODEL_FIGURES)
        for name, metric in MODEL_FIGURES.items():
            if name in steps.figures:
                yield Sample(metric, steps.figures[name][1])
        for name in others[:MEASUREMENTS_SHOWN]:
            yield Sample("stabexp_measurement", steps.figures[name][1], {"name": name})

    def _layers(self) -> Iterator[Sample]:
        layers = {name: kinds for name, kinds in self.steps.layers.items() if kinds}
        if not layers:
            return
        shown = shown_layers(list(layers), most=self._most, patterns=self._patterns)
        yield Sample("stabexp_layers", len(layers))
        yield Sample("stabexp_layers_left_out", len(layers) - len(shown))
        for layer in shown:
            for kind, metric in LAYER_FIGURES.items():
                if kind in layers[layer]:
                    yield Sample(metric, layers[layer][kind][1], {"layer": layer})
        for kind, metric in LARGEST.items():
            values = [kinds[kind][1] for kinds in layers.values() if kind in kinds]
            if values:
                yield Sample(metric, _largest(values))
        for kind, metric in SMALLEST.items():
            values = [kinds[kind][1] for kinds in layers.values() if kind in kinds]
            if positive := [value for value in values if value > 0]:
                yield Sample(metric, min(positive))

    def _happened(self) -> Iterator[Sample]:
        for metric, label, counted in (
            ("stabexp_alarms", "alarm", self._alarms),
            ("stabexp_warnings", "kind", self._warnings),
            ("stabexp_interventions", "by", self._actions),
        ):
            for name, count in sorted(counted.items()):
                yield Sample(metric, count, {label: name})

    def _divergence(self) -> Iterator[Sample]:
        found = self._record(Divergence, self.path / DIVERGENCE)
        yield Sample("stabexp_diverged", float(found is not None))
        if found is not None:
            what = {"detector": found.detector, "pattern": found.pattern}
            yield Sample("stabexp_divergence", 1, what)
            yield Sample("stabexp_divergence_detected_step", found.detected)
            yield Sample("stabexp_divergence_onset_step", found.onset)

    def _bisect(self) -> Iterator[Sample]:
        path = self._latest_bisect()
        if path is None:
            return
        yield from _state("stabexp_bisect_status", self._bisect_status(path), STATES)
        yield Sample("stabexp_bisect_trials", len(list((path / "trials").glob("*/run.json"))))
        file = path / "verdict.json"
        verdict = self._record(Verdict, file)
        if verdict is None:
            return
        what = {
            "cause": verdict.cause,
            "family": verdict.family,
            "fix": json.dumps(dict(verdict.fix)) if verdict.fix else "",
            "proved": "true" if verdict.fix_proved else "false",
        }
        yield Sample("stabexp_verdict", 1, what)
        yield Sample("stabexp_verdict_confidence_ratio", verdict.confidence)
        yield Sample("stabexp_verdict_timestamp_seconds", file.stat().st_mtime)

    def _recovery(self) -> Iterator[Sample]:
        found = self._record(Recovery, self.path / "recovery.json")
        if found is not None:
            yield from _state("stabexp_recovery_status", found.status, RECOVERIES)
            yield Sample("stabexp_recovery_rollbacks", found.rollbacks)

    def _read_events(self) -> None:
        for line in read_lines(self.path / EVENTS, self._events_at):
            self._events_at = line.end
            event = line.value
            if "alarm" in event:
                self._alarms[str(event["alarm"])] += 1
            elif event.get("what") == "warning":
                self._warnings[str(event.get("kind", ""))] += 1
            elif "by" in event:
                self._actions[str(event["by"])] += 1

    def _latest_bisect(self) -> Path | None:
        try:
            found = [
                Path(each.path)
                for each in os.scandir(self.path / "bisects")
                if (Path(each.path) / "run.json").exists()
            ]
        except OSError:
            return None
        return max(found, key=lambda path: (_number(path.name), path.name), default=None)

    def _bisect_status(self, path: Path) -> str:
        with self._noting():
            directory = self._read(path / "run.json", lambda file: RunDirectory.open(file.parent))
            if directory is not None:
                return self._status(directory)
        return "running"

    def _status(self, directory: RunDirectory) -> str:
        said = self._read(directory.path / "outbox.jsonl", lambda _: directory.status())
        if said in {None, "RUNNING"}:
            return "running" if is_alive(directory.manifest.writer) else "killed"
        if said == "FAILED" and (directory.path / DIVERGENCE).exists():
            return "diverged"
        return str(said).lower()

    def _record(self, kind: type[_T], file: Path) -> _T | None:
        def read(path: Path) -> _T:
            try:
                return from_json(kind, json.loads(path.read_bytes()))
            except ValueError as error:  # pydantic's is one, too
                raise StabexpError(f"{path}: damaged; restore it from a copy") from error

        return self._read(file, read)

    def _read(self, file: Path, read: Callable[[Path], _T]) -> _T | None:
        """Return what `read` makes of a file, read again only when it changed; None without it."""
        try:
            state = file.stat()
        except OSError:
            return None
        seal = (state.st_mtime_ns, state.st_size, state.st_ino)
        kept = self._kept.get(file)
        if kept is None or kept[0] != seal:
            kept = self._kept[file] = (seal, read(file))
        value: _T = kept[1]
        return value

    def _noting(self) -> _Noting:
        return _Noting(self)


class _Noting:
    """Keeps a damaged file from hiding the rest of a run."""

    def __init__(self, view: RunView) -> None:
        self._view = view

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if isinstance(error, (StabexpError, OSError)):
            self._view.problem = str(error)
            return True
        return False


def _state(metric: str, now: str, states: tuple[str, ...]) -> Iterator[Sample]:
    for state in states:
        yield Sample(metric, float(state == now), {"status": state})


def _largest(values: list[float]) -> float:
    return next(filter(math.isnan, values), max(values))


def _number(name: str) -> int:
    digits = name.rpartition("-")[2]
    return int(digits) if digits.isdigit() else 0
