"""Trainings made to compare runs: the same steps under close watch, or other settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from stabexp.bisection.key_search import Answers, Combination, decide, next_questions
from stabexp.bisection.tensor_difference import Digests
from stabexp.comparison.configuration import Flat, Setting, patch_for, settings_of
from stabexp.comparison.result import KeySearch
from stabexp.errors import StabexpError, TrackingError
from stabexp.instruments.tensor_digests import TensorDigests
from stabexp.records import Divergence, StepRecord
from stabexp.training import Fork, Program, Run, execute

Build = Callable[[Mapping[str, Any]], Program]
"""Patch (dotted experiment keys) → program."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of two runs that are compared."""

    run_id: str
    directory: Path
    records: Sequence[StepRecord]
    divergence: Divergence | None
    settings: Flat
    """The experiment by dotted key."""
    build: Build

    @property
    def checkpoints(self) -> Path:
        """Directory of its checkpoints."""
        return self.directory / "checkpoints"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One question of a key search and its answer, as told while it goes on."""

    settings: tuple[str, ...]
    """What the good run took over from the bad one."""
    diverged: bool | None
    note: str = ""
    """Why it cannot be told; empty when it can."""


def watched_replay(
    side: Side, *, from_step: int, until_step: int
) -> tuple[Digests, tuple[StepRecord, ...]]:
    """Replay some steps of a run unchanged, and return every tensor's digest and the records."""
    records: list[StepRecord] = []
    program = side.build({})
    instrument = TensorDigests(first_step=from_step, last_step=until_step - 1)
    earlier = [record for record in side.records if record.step < from_step]
    run = Run(
        program.settings,
        fork=Fork(checkpoints=side.checkpoints, step=from_step, records=earlier),
        until=until_step,
        on_step=records.append,
        instruments=(instrument,),
        judged=False,
    )
    with _same_threads():
        execute(program, run)
    return instrument.findings(), tuple(records)


def search_keys(
    good: Side,
    bad: Side,
    *,
    steps: int,
    progress: Callable[[Asked], None] = lambda asked: None,
) -> KeySearch:
    """Find the fewest settings of the bad run with which the good one diverges within `steps`.

    Every question is a training from the start, in this process.
    """
    made = 0

    def diverges(patch: Mapping[str, Any]) -> bool:
        nonlocal made
        program = good.build(patch)
        run = Run(program.settings, until=min(steps, program.settings.steps or steps))
        with _same_threads():
            execute(program, run)
        made += run.step
        return run.divergence is not None

    settings = settings_of(good.settings, bad.settings)
    answers = _answers(settings, good.settings, bad.settings, diverges, progress)
    decision = decide(answers, count=len(settings))
    assert decision is not None
    chosen = [settings[index] for index in decision.settings]
    return KeySearch(
        good=good.run_id,
        bad=bad.run_id,
        finding=decision.finding,
        settings=tuple(setting.name for setting in chosen),
        patch=patch_for(chosen, good.settings, bad.settings),
        untold=tuple(settings[index].name for index in decision.untold),
        questions=len(answers),
        steps=made,
    )


def _answers(
    settings: Sequence[Setting],
    good: Flat,
    bad: Flat,
    diverges: Callable[[Mapping[str, Any]], bool],
    progress: Callable[[Asked], None],
) -> Answers:
    answers: dict[Combination, bool | None] = {}
    while questions := next_questions(answers, count=len(settings)):
        chosen = [settings[index] for index in sorted(questions[0])]
        note = ""
        try:
            answers[questions[0]] = diverges(patch_for(chosen, good, bad))
        except TrackingError:
            raise  # a full disk says nothing about the settings
        except StabexpError as error:  # this combination of settings cannot be trained
            answers[questions[0]], note = None, str(error)
        names = tuple(setting.name for setting in chosen)
        progress(Asked(settings=names, diverged=answers[questions[0]], note=note))
    return answers


@contextmanager
def _same_threads() -> Iterator[None]:
    """Leave the process with the number of threads it had; a program may set its own."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
