"""How early, how often and how falsely the recorded programs are warned of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from experiments.early_warning.naive import NAIVE, alarms
from experiments.early_warning.programs import Draw
from experiments.early_warning.recording import steps_of
from stabexp.prediction import crossing, warnings_in
from stabexp.records import StepRecord

EARLY = 15
"""Steps of lead that are aimed at."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What one rule told of one program: ours, or a naive one."""

    lead: int
    """Steps from its first alarm after something went wrong to the crossing; 0 for none."""
    false: int
    """Alarms while nothing was wrong."""
    after: int = 0
    """Alarms of a program whose loss never left."""
    named: bool = False
    """Whether the first alarm names the class."""


@dataclass(frozen=True, kw_only=True)
class Scored:
    """One program."""

    draw: Draw
    clean_steps: int
    """Steps while nothing was wrong."""
    left: int | None
    """Where its loss left, after something went wrong."""
    told: dict[str, Told]
    """Rule → what it told; ours is ""."""


def scored(draw: Draw, records: Sequence[StepRecord]) -> Scored:
    """Judge the record of a program."""
    begins = draw.build().begins
    left = None
    if begins is not None:
        left = crossing([record.loss for record in records], since=begins)
    ours = [(each.step, each.kind) for each in warnings_in(records)]
    told = {"": _told([step for step, _ in ours], begins, left)}
    counted = [kind for step, kind in ours if begins is not None and step >= begins]
    told[""] = Told(
        lead=told[""].lead,
        false=told[""].false,
        after=told[""].after,
        named=bool(counted) and counted[0] == draw.scenario,
    )
    for name, rule in NAIVE.items():
        told[name] = _told(alarms(rule, records), begins, left)
    clean = len(records) if begins is None else begins
    return Scored(draw=draw, clean_steps=clean, left=left, told=told)


def judged(draw: Draw) -> Scored:
    """Return how a program that was recorded before was warned of."""
    return scored(draw, steps_of(draw))


def _told(steps: Sequence[int], begins: int | None, left: int | None) -> Told:
    start = float("inf") if begins is None else begins
    false = sum(step < start for step in steps)
    later = [step for step in steps if step >= start]
    if left is None:
        return Told(lead=0, false=false, after=len(later))
    return Told(lead=max([left - step for step in later if step < left], default=0), false=false)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A class of programs in one line."""

    name: str
    programs: int
    crashed: int
    warned: float
    """Share of the crashed that were warned of before."""
    early: float
    """Share that were with `EARLY` steps or more."""
    median_lead: float
    """Over all that crashed, 0 for those without a warning."""
    named: float


def row(name: str, programs: Sequence[Scored], rule: str = "") -> Row:
    """Return what a rule reached in a class."""
    crashed = [each.told[rule] for each in programs if each.left is not None]
    leads = [told.lead for told in crashed]
    count = max(1, len(leads))
    return Row(
        name=name,
        programs=len(programs),
        crashed=len(leads),
        warned=sum(lead > 0 for lead in leads) / count,
        early=sum(lead >= EARLY for lead in leads) / count,
        median_lead=median(leads) if leads else 0.0,
        named=sum(told.named for told in crashed if told.lead > 0)
        / max(1, sum(lead > 0 for lead in leads)),
    )


def false_alarms(programs: Sequence[Scored], rule: str = "") -> tuple[int, int, int]:
    """Return false alarms, the steps they could have come in, and the runs with one."""
    false = [each.told[rule].false for each in programs]
    return sum(false), sum(each.clean_steps for each in programs), sum(f > 0 for f in false)
