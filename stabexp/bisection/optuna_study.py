"""The dose searches of one bisect as Optuna studies: resumable, shared by processes, browsable.

One study per variable; a trial is one dose. The sampler is ours: Optuna keeps the table of what was
tried, `search` decides what to try. Two processes never take the same dose, because a trial chooses
only after every trial with a lower number has chosen (its number is its place in the queue).
"""

from __future__ import annotations

import math
import os
import socket
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.exceptions import OptunaError, UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.exc import SQLAlchemyError

from stabexp.bisection.ladder import Dose, Ladder
from stabexp.bisection.search import LadderAnswer, decide, next_questions
from stabexp.errors import TrackingError
from stabexp.records import Outcome

PARAMETER = "dose_index"
_TURN_SECONDS = 10.0
"""A trial that has not chosen a dose after so long belongs to a process that was killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A dose to try, taken by this process until it is told or released."""

    ladder: Ladder
    index: int
    number: int
    """The trial's number in the variable's study."""

    @property
    def dose(self) -> Dose:
        """The dose in the variable's terms."""
        return self.ladder.doses[self.index]

    @property
    def label(self) -> str:
        """The dose as people read it."""
        return self.ladder.label(self.index)


class DoseSampler(optuna.samplers.BaseSampler):
    """Suggests the dose that `search` would try next, given all trials of the study."""

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return no joint space: there is one parameter."""
        return {}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return nothing; see `infer_relative_search_space`."""
        return {}

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> int:
        """Return the next dose index.

        Raises:
            LookupError: If no dose is worth trying now.
        """
        assert isinstance(param_distribution, IntDistribution)
        question = _next_dose(study, count=param_distribution.high + 1)
        if question is None:
            raise LookupError(f"{study.study_name}: no dose is worth trying now")
        return question


class DoseStudies:
    """All dose searches of one bisect in one database."""

    def __init__(self, storage: Path | str, *, bisect_id: str = "") -> None:
        """Open the database, creating it when it does not exist.

        Args:
            storage: A SQLite file, or an SQLAlchemy URL ("postgresql+psycopg2://…").
            bisect_id: Put before the studies' names; needed when bisects share a database.

        Raises:
            TrackingError: If the database cannot be opened.
        """
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._url = str(storage) if "://" in str(storage) else _sqlite_url(Path(storage))
        self._prefix = f"{bisect_id}/" if bisect_id else ""
        self._storage = _open(self._url)
        self._studies: dict[str, optuna.Study] = {}
        self._mine: dict[Question, optuna.Trial] = {}
        self._owner = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started": _process_start(os.getpid()),
            "handle": uuid.uuid4().hex[:8],
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the unanswered questions and disconnect."""
        for question in list(self._mine):
            self.release(question)
        self._storage.remove_session()
        self._storage.engine.dispose()

    def reopen(self) -> int:
        """Free the doses taken by processes that no longer run; return how many there were.

        A process on another host counts as gone: a bisect is locked by one host at a time.
        """
        freed = 0
        for stored in self._storage.get_all_studies():
            if not stored.study_name.startswith(self._prefix):
                continue
            study = self._load(stored.study_name)
            for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
                if not self._alive(trial):
                    freed += _fail(study, trial.number)
        return freed

    def ask(self, ladder: Ladder) -> Question | None:
        """Take the next dose worth trying; None when the ladder is decided or all such doses run.

        Raises:
            TrackingError: If the study in the database has other doses than the ladder.
        """
        study, count = self._study(ladder), len(ladder.doses)
        while _next_dose(study, count=count) is not None:
            trial = study.ask()
            try:
                trial.set_user_attr("owner", self._owner)
                _wait_for_turn(study, trial.number)
                # Looked at again, as Optuna does not ask the sampler when there is one dose only.
                if _next_dose(study, count=count) is None:
                    raise LookupError
                index = trial.suggest_int(PARAMETER, 0, count - 1)
                trial.set_user_attr("label", ladder.label(index))
            except LookupError:
                _fail(study, trial.number)
                return None
            except UpdateFinishedTrialError:
                continue  # We were so slow that another process took us for dead: queue again.
            except BaseException:
                _fail(study, trial.number)
                raise
            question = Question(ladder=ladder, index=index, number=trial.number)
            self._mine[question] = trial
            return question
        return None

    def tell(
        self,
        question: Question,
        outcome: Outcome,
        *,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Record what a dose did, for good.

        The trial's value is the dose's index when it cured and the number of doses otherwise, so
        the best trial of the study is the mildest cure.

        Args:
            question: What `ask` returned.
            outcome: "inconclusive" takes the dose out of the ladder.
            attributes: JSON-ready values to keep with the trial.

        Raises:
            ValueError: If the question is not open here: told, released, or asked elsewhere.
        """
        if question not in self._mine:
            raise ValueError(f"{question.label}: not taken by this handle; ask for it first")
        trial = self._mine.pop(question)
        study, count = self._study(question.ladder), len(question.ladder.doses)
        about = _plain({**(attributes or {}), "outcome": outcome, "dose": question.dose})
        value = float(question.index if outcome == "cured" else count)
        try:
            for name, item in about.items():
                trial.set_user_attr(name, item)
            study.tell(trial, value)
        except UpdateFinishedTrialError:
            # Someone took this process for dead and freed the dose. What the dose did is known all
            # the same, so it need not be asked again.
            self._add(study, question, value=value, attributes=about)

    def release(self, question: Question) -> None:
        """Give a dose back unanswered, so that it is asked again."""
        _fail(self._study(question.ladder), question.number)
        self._mine.pop(question, None)

    def answer(self, ladder: Ladder) -> LadderAnswer | None:
        """Return what the ladder's trials settle, None while a question is open.

        Raises:
            TrackingError: If the study in the database has other doses than the ladder.
        """
        attributes = self.finished(ladder)
        outcomes = {index: found["outcome"] for index, found in attributes.items()}
        decision = decide(outcomes, count=len(ladder.doses))
        if decision is None:
            return None
        return LadderAnswer(
            ladder=ladder, decision=decision, outcomes=outcomes, attributes=attributes
        )

    def finished(self, ladder: Ladder) -> dict[int, dict[str, Any]]:
        """Return what was told about each finished dose, by index.

        Raises:
            TrackingError: If the study in the database has other doses than the ladder.
        """
        finished, _ = _trials(self._study(ladder))
        return {index: dict(trial.user_attrs) for index, trial in finished.items()}

    def _study(self, ladder: Ladder) -> optuna.Study:
        name = self._prefix + ladder.variable
        if name not in self._studies:
            study = self._studies[name] = self._load(name)
            if "doses" not in study.user_attrs:
                study.set_user_attr("doses", list(ladder.doses))
        stored = self._studies[name].user_attrs["doses"]
        if stored != list(ladder.doses):
            raise TrackingError(
                f"{self._url}: study '{name}' has the doses {stored}, not {list(ladder.doses)};"
                " give this bisect a database or a bisect_id of its own"
            )
        return self._studies[name]

    def _add(
        self, study: optuna.Study, question: Question, *, value: float, attributes: dict[str, Any]
    ) -> None:
        last = len(question.ladder.doses) - 1
        study.add_trial(
            create_trial(
                value=value,
                params={PARAMETER: question.index},
                distributions={PARAMETER: IntDistribution(0, last)},
                user_attrs={**attributes, "label": question.label},
            )
        )

    def _load(self, name: str) -> optuna.Study:
        return optuna.create_study(
            study_name=name,
            storage=self._storage,
            sampler=DoseSampler(),
            pruner=optuna.pruners.NopPruner(),
            direction="minimize",
            load_if_exists=True,
        )

    def _alive(self, trial: FrozenTrial) -> bool:
        owner = trial.user_attrs.get("owner")
        if owner is None:  # Its process has just taken a number, or was killed as it did.
            assert trial.datetime_start is not None
            return (datetime.now() - trial.datetime_start).total_seconds() < _TURN_SECONDS
        here = owner["host"] == self._owner["host"]
        if here and owner["pid"] == self._owner["pid"]:
            return bool(owner == self._owner)
        return bool(here) and owner["started"] == _process_start(owner["pid"])


def _sqlite_url(path: Path) -> str:
    path.absolute().parent.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{path.absolute()}"


def _open(url: str) -> optuna.storages.RDBStorage:
    arguments = {"connect_args": {"timeout": 30}} if url.startswith("sqlite") else {}
    for attempt in range(5):
        try:
            return optuna.storages.RDBStorage(url, engine_kwargs=arguments)
        except (SQLAlchemyError, ImportError, RuntimeError, OptunaError) as error:
            # Two processes that create the tables at the same moment fail once, not five times.
            reason = str(error).splitlines()[0]
            time.sleep(0.1 * attempt)
    raise TrackingError(
        f"{url}: cannot be opened as a database of dose searches: {reason};"
        " move it away or name another (the trials themselves are kept with the run)"
    )


def _trials(study: optuna.Study) -> tuple[dict[int, FrozenTrial], set[int]]:
    """Return the finished trials by dose index, and the doses being tried."""
    finished: dict[int, FrozenTrial] = {}
    running: set[int] = set()
    for trial in study.get_trials(deepcopy=False):
        if PARAMETER not in trial.params:
            continue
        if trial.state is TrialState.COMPLETE and "outcome" in trial.user_attrs:
            finished[trial.params[PARAMETER]] = trial
        elif trial.state is TrialState.RUNNING:
            running.add(trial.params[PARAMETER])
    return finished, running - set(finished)


def _next_dose(study: optuna.Study, *, count: int) -> int | None:
    finished, running = _trials(study)
    outcomes = {index: trial.user_attrs["outcome"] for index, trial in finished.items()}
    return next(iter(next_questions(outcomes, count=count, running=running)), None)


def _wait_for_turn(study: optuna.Study, number: int) -> None:
    """Return when every running trial with a lower number has chosen its dose."""
    deadline = time.monotonic() + _TURN_SECONDS
    while True:
        ahead = [
            trial.number
            for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
            if trial.number < number and PARAMETER not in trial.params
        ]
        if not ahead:
            return
        if time.monotonic() > deadline:
            for other in ahead:
                _fail(study, other)
        time.sleep(0.02)


def _fail(study: optuna.Study, number: int) -> bool:
    """Mark a trial as failed, so that its dose is free; False when it was finished already."""
    try:
        study.tell(number, state=TrialState.FAIL)
    except (UpdateFinishedTrialError, ValueError):
        return False
    return True


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes as strict JSON values: NaN and ±Inf as text."""
    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in attributes.items()
    }


def _process_start(pid: int) -> str | None:
    """Return when a process of this host began, None when it does not run.

    Ids are used again, so an id alone does not name a process. Where there is no /proc the time is
    unknown and "" stands for it.
    """
    if not Path("/proc/self/stat").exists():
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except PermissionError:
            pass
        return ""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]
