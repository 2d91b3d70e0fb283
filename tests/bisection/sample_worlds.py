"""Runs that crash on hidden samples, simulated: the truth a data search has to find."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from stabexp.bisection.data_case import DataAnswer, DataTable, SampleScore
from stabexp.bisection.data_search import decision, next_question

GOOD = 100
"""First replayed step."""


@dataclass
class World:
    """A run of `steps` replayed steps of `batch` samples; some groups of samples crash it."""

    steps: int
    batch: int
    groups: tuple[frozenset[int], ...] = ()
    """Each crashes the run when all of it is in one batch."""
    seed: int = 0
    passes: float = 0.25
    """Passes over the data that the replay takes; above 1 samples come up again."""
    late: float = 0.3
    """Probability that a loss shows its cause one or two steps late."""
    state_step: int | None = None
    """Step from which on the run crashes whatever is shown, a few steps more or less."""
    fragile: bool = False
    """Whether another state can take the groups."""
    scanned: bool = True
    visible: bool = True
    """Whether the scan shows the culprits."""
    decoys: int = 0
    """Innocent samples that stand out in the scan."""
    unjudged: float = 0.0
    """Probability that a replay cannot be judged."""
    asked: list = field(default_factory=list)

    def __post_init__(self):
        self.horizon = self.steps + max(8, self.steps // 4)
        self.size = max(8, round(self.steps * self.batch / self.passes))
        self.order = []
        stream = random.Random(f"order {self.seed}")
        while len(self.order) < self.horizon * self.batch:
            self.order += stream.sample(range(self.size), self.size)

    def ids(self, step):
        at = (step - GOOD) * self.batch
        return tuple(self.order[at : at + self.batch])

    def replay(self, replaced=frozenset(), show=()):
        """Return the answer of one replay, as deterministic as the real one."""
        stream = random.Random(f"{self.seed} {sorted(replaced)} {show}")
        if replaced and stream.random() < self.unjudged:
            return DataAnswer(outcome="inconclusive")
        instead = substitutes(replaced, self.size)
        shown, crash = {}, None
        for step in range(GOOD, GOOD + self.horizon):
            ids = tuple(instead.get(i, i) for i in self.ids(step))
            if step - GOOD < len(show):
                ids = show[step - GOOD]
            shown[step] = ids
            takes = self.fragile and show
            if not takes and any(group <= set(ids) for group in self.groups):
                crash = step
            if self.state_step is not None and step >= self.state_step + stream.randint(-2, 3):
                crash = step
            if crash is not None:
                break
        if crash is None:
            return DataAnswer(outcome="cured", shown=shown)
        lag = stream.choice((1, 2)) if stream.random() < self.late else 0
        early = 1 if stream.random() < 0.05 else 0
        onset = max(GOOD, crash + lag - early)
        detected = onset + stream.randint(0, 4)
        for step in range(crash + 1, detected + 1):
            shown[step] = tuple(instead.get(i, i) for i in self.ids(step))
        return DataAnswer(outcome="diverged", onset=onset, detected=detected, shown=shown)

    def scan(self, control):
        """Return the scores of the samples around the crash, log-normal with a few far above."""
        if not self.scanned:
            return {}
        stream = random.Random(f"scan {self.seed}")
        last = [step for step in control.shown if step > control.onset - 10]
        scanned = frozenset(i for step in last for i in control.shown[step])
        scores = {
            i: SampleScore(
                loss=math.exp(stream.gauss(-2, 1)), grad_norm=math.exp(stream.gauss(-1, 0.7))
            )
            for i in sorted(scanned | frozenset().union(*self.groups))
        }
        culprits = sorted(i for group in self.groups for i in group)
        others = [i for i in scores if i not in culprits]
        decoys = stream.sample(others, min(self.decoys, len(others)))
        for i in [*(culprits if self.visible else ()), *decoys]:
            level = stream.choice((9.0, 14.0, math.inf))
            scores[i] = SampleScore(loss=math.exp(level), grad_norm=math.exp(level + 1))
        return scores


def substitutes(replaced, size):
    """Return who is shown instead: the next sample in the dataset that is not replaced."""
    found = {}
    for sample in replaced:
        other = (sample + 1) % size
        while other in replaced:
            other = (other + 1) % size
        found[sample] = other
    return found


def hide(world, sizes, *, within=None):
    """Hide groups of the given sizes in the world, each in one batch within the first steps."""
    stream = random.Random(f"hide {world.seed}")
    last = min(within or world.steps, world.steps)
    groups, taken = [], set()
    for size in sizes:
        for _ in range(100):
            step = GOOD + stream.randrange(last)
            free = [i for i in dict.fromkeys(world.ids(step)) if i not in taken]
            if len(free) >= size:
                group = frozenset(stream.sample(free, size))
                taken |= group
                groups.append(group)
                break
    world.groups = tuple(groups)
    return world


def solve(world):
    """Return the decision and the questions, asked one by one; None when nothing crashes."""
    control = world.replay()
    if control.outcome != "diverged":
        return None, []
    table = DataTable(control=control, dataset_size=world.size, scan=world.scan(control))
    questions = []
    while (question := next_question(table)) is not None:
        assert question not in table.answers
        assert len(questions) < 200
        questions.append(question)
        answer = world.replay(question.replace, question.show)
        table = DataTable(
            control=control,
            dataset_size=world.size,
            scan=table.scan,
            answers={**table.answers, question: answer},
        )
    return decision(table), questions
