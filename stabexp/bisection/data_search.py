"""Finds the samples without which a crashed run trains through, in a few replays.

A replay says more than yes or no. When it crashes, what was shown long before is innocent, and the
culprit is among what it showed shortly before. So crash after crash its suspects are replaced until
the run trains through; then more and more of the suspects are shown again, at all crash sites in
one replay, and the site that crashes first has had one culprit too many. The last sample added is
needed. Shown alone it crashes too, or it takes company, which is found the same way. A scan of the
samples only decides who is asked first, so a wrong hint costs questions and never the answer.

What is found is put to the test: replacing just that must cure, each must bring the crash back,
replacing as many others must not cure, and another state must crash on it as well. Where it does
not, the samples are hard and it is the state that was fragile.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Generator, Iterable, Sequence
from itertools import chain
from typing import TypeVar

from stabexp.bisection.crash_site import BEFORE, Crash, Site, sites_of
from stabexp.bisection.data_case import (
    RAISED,
    DataAnswer,
    DataDecision,
    DataQuestion,
    DataTable,
    DataVerdict,
    QuestionKind,
    deviations,
    flagged,
    most_replays,
    whole_batches,
)
from stabexp.bisection.data_proof import (
    Group,
    harmless,
    listed,
    smallest_cure,
    soon_after,
    union,
    witness,
)

CRASHES = 4
"""Crashes that are taken away one by one; more of them mean that the data only lights the fuse."""
LARGEST_GROUP = 3
"""Samples that may have to come together."""

_T = TypeVar("_T")
_Asking = Generator[DataQuestion, DataAnswer, _T]


def next_question(table: DataTable) -> DataQuestion | None:
    """Return the replay to run next, None when the search is over."""
    return _walk(table)[0]


def decision(table: DataTable) -> DataDecision:
    """Return what the replays so far say; undecided while a question is open."""
    question, found = _walk(table)
    if found is not None:
        return found
    assert question is not None
    return DataDecision(
        verdict="undecided",
        samples=smallest_cure(table.answers.items()),
        why=f"the search is not over; it would ask: {question.reason}",
        replays=len(table.answers),
    )


def _walk(table: DataTable) -> tuple[DataQuestion | None, DataDecision | None]:
    """Go through the search with the answers at hand; return the open question or the decision."""
    search = _Search(table).run()
    try:
        question = next(search)
        while question in table.answers:
            question = search.send(table.answers[question])
    except StopIteration as end:
        return None, end.value
    return question, None


class _Ended(Exception):
    """The search is over before its last question."""

    def __init__(self, verdict: DataVerdict, why: str) -> None:
        super().__init__(why)
        self.verdict: DataVerdict = verdict
        self.why = why


class _Search:
    """One search; its methods ask by yielding a question and being sent the answer."""

    def __init__(self, table: DataTable) -> None:
        if table.control.outcome != "diverged":
            raise ValueError(f"the unchanged replay is {table.control.outcome}: nothing to search")
        self.table = table
        self.control = table.control
        self.asked: list[tuple[DataQuestion, DataAnswer]] = [
            (DataQuestion(replace=frozenset(), kind="all"), table.control)
        ]
        self.groups: list[Group] = []
        self.exact = True
        z = deviations(table.scan)
        self.suspicion = {s: math.exp(min(v, 10.0) - 2.0) for s, v in z.items() if v > RAISED}
        """Factors on the suspicion of samples above the ordinary; 1 for all others."""
        self.whole = frozenset(whole_batches(z, table.control.shown))
        self.flags = tuple(sorted(self.whole)) or flagged(z)
        self.survived = self.control.seen(until=(self.control.onset or 0) - BEFORE - 1)
        """What the control showed before anything that is suspected."""
        batch = max(map(len, self.control.shown.values()), default=1)
        self.limit = 8 + 2 * most_replays(len(self.control.shown), batch)

    def run(self) -> _Asking[DataDecision]:
        """Ask until it is known which samples did it, or that it was none of them."""
        try:
            curing, crashes = yield from self._take_away()
            if curing == self.whole:
                self.groups, self.exact = [curing], False  # which of it is enough says nothing
            else:
                self.groups = yield from self._narrow(curing, crashes)
            yield from self._ask_placebo()
            return (yield from self._ask_other_state())
        except _Ended as end:
            return self._decided(end.verdict, end.why)

    def _ask(
        self,
        replace: Iterable[int],
        kind: QuestionKind,
        reason: str,
        *,
        show: tuple[tuple[int, ...], ...] = (),
    ) -> _Asking[DataAnswer]:
        """Return a replay's answer: a known one, or what asking for it gives.

        One that cannot be judged is tried again with one innocent sample more replaced: its course
        is a little different, and what it says about the others is the same.
        """
        replaced = frozenset(replace)
        question = DataQuestion(replace=replaced, kind=kind, show=show, reason=reason)
        answer = yield from self._ask_once(question)
        innocent = self.survived - replaced - set(self.flags)
        if answer.outcome == "inconclusive" and innocent:
            question = dataclasses.replace(question, replace=replaced | {min(innocent)})
            answer = yield from self._ask_once(question)
        return answer

    def _ask_once(self, question: DataQuestion) -> _Asking[DataAnswer]:
        for known, answer in self.asked:
            if known == question:
                return answer
        if len(self.asked) > self.limit:
            raise _Ended("undecided", f"{self.limit} replays did not settle it")
        answer = yield question
        self.asked.append((question, answer))
        return answer

    def _take_away(self) -> _Asking[tuple[Group, list[Crash]]]:
        """Return suspects without which the run trains through, and the crashes they stand for."""
        crashes = [Crash(self.control)]
        replaced: Group = frozenset()
        if self.flags:
            reason = f"does it crash without what stood out in the scan, {listed(self.flags)}?"
            answer = yield from self._ask(self.flags, "flagged", reason)
            if answer.outcome == "cured":
                return frozenset(self.flags), crashes
            if crashes[-1].moved_to(answer):
                replaced = frozenset(self.flags)
                crashes.append(Crash(answer))
        stuck = False
        while len(crashes) <= CRASHES:
            crash = crashes[-1]
            tried = replaced
            replaced = self._fitting(tried | crash.suspects(), crash)
            if replaced <= tried:  # no room for more, but perhaps for others
                replaced = self._fitting(crash.suspects() - tried, crash)
            if not replaced:
                raise _Ended("undecided", "what it showed before it crashed is not known")
            replaced, answer = yield from self._ask_without(replaced, crash)
            if answer.outcome == "cured":
                return replaced, crashes
            if crash.moved_to(answer):
                stuck = False
                crashes.append(Crash(answer))
            elif stuck and not crash.suspects() <= replaced:
                raise _Ended("undecided", "it cannot be without its suspects: too much of the data")
            elif stuck:
                why = f"with others in place of all {len(replaced)} suspects"
                raise _Ended("not_data", f"it crashed at step {answer.onset} all the same {why}")
            else:
                # What came in their place may be bad as well, or the cause lies further back.
                stuck = True
                crashes[-1] = crash.widened(answer)
        steps = ", ".join(str(crash.onset) for crash in crashes)
        raise _Ended(
            "not_data",
            f"each time the samples it crashed on were replaced, it crashed on others: at {steps}",
        )

    def _ask_without(self, replaced: Group, crash: Crash) -> _Asking[tuple[Group, DataAnswer]]:
        """Ask without the suspects; without the likelier half when that cannot be judged."""
        while True:
            reason = f"does it crash without all {len(replaced)} suspects?"
            answer = yield from self._ask(replaced, "all", reason)
            if answer.outcome != "inconclusive":
                return replaced, answer
            fewer = self._fitting(replaced, crash, at_most=len(replaced) // 2)
            if not fewer:
                raise _Ended("undecided", "without its suspects it cannot be judged")
            replaced = fewer

    def _fitting(self, wanted: Group, crash: Crash, *, at_most: int | None = None) -> Group:
        """Return the likeliest of some suspects, so many that half of the data is left."""
        room = self.table.dataset_size // 2 if at_most is None else at_most
        if len(wanted) <= room:
            return wanted
        weights = crash.weights(wanted, self.suspicion)
        # Suspects of earlier crashes are known to be needed: they come first.
        return frozenset(sorted(wanted, key=lambda s: (-weights.get(s, math.inf), s))[:room])

    def _narrow(self, curing: Group, crashes: Sequence[Crash]) -> _Asking[list[Group]]:
        """Return the groups of samples among the curing ones that are each enough for a crash."""
        groups: list[Group] = []
        sites = sites_of(crashes, curing, self.suspicion)
        for _ in range(2 * CRASHES):
            yield from self._halve(sites, curing)
            for site in sites:
                groups.append((yield from self._with_company(site, curing)))
            culprits = union(groups)
            reason = f"is it enough to replace {listed(culprits)}?"
            answer = yield from self._ask(culprits, "necessity", reason)
            if answer.outcome == "cured":
                return (yield from self._needed(groups, curing))
            if answer.outcome == "inconclusive" or culprits >= curing:
                break
            sites = sites_of([Crash(answer)], curing - culprits, self.suspicion)
        raise _Ended("undecided", "without the samples that crash it one by one it still crashes")

    def _halve(self, sites: Sequence[Site], curing: Group) -> _Asking[None]:
        """Ask until at every site the last sample needed for its crash is known.

        Sites are in order of time, and a crash hides what comes after it. So the earlier ones show
        less of their suspicion: with all n + 1 ends of a replay equally likely it tells the most.
        """
        while wide := [site for site in sites if site.open]:
            cuts = [site.cut(1 / (len(wide) - index + 1)) for index, site in enumerate(wide)]
            shown = union(site.shown(cut) for site, cut in zip(wide, cuts, strict=True))
            reason = f"does it crash with {len(shown)} of {len(curing)} suspects shown again?"
            answer = yield from self._ask(curing - shown, "half", reason)
            if answer.outcome == "inconclusive":
                self.exact = wide[0].skip(cuts[0]) and self.exact
                continue
            hit = _hit(wide, answer)
            for site, cut in zip(wide, cuts, strict=True):
                if site is hit:
                    site.crashed(cut, alone=len(site.shown(cut)) == 1)
                    break
                site.survived(cut)

    def _with_company(self, site: Site, curing: Group) -> _Asking[Group]:
        """Return the last sample needed at a site, with those that it takes to crash.

        Where not even a few together do, chance has a part in it: then the first one, not exactly.
        """
        core = frozenset({site.last_needed})
        while True:
            group = site.company | {site.last_needed}
            if site.settled:
                return group
            reason = f"does the crash come back with {listed(group)} shown again?"
            answer = yield from self._ask(curing - group, "necessity", reason)
            if answer.outcome == "diverged":
                return group
            judged = answer.outcome == "cured" and len(group) < LARGEST_GROUP
            if not judged or not site.look_for_company(self._batch_of(group)):
                self.exact = False
                return core
            yield from self._halve([site], curing)

    def _needed(self, groups: Sequence[Group], curing: Group) -> _Asking[list[Group]]:
        """Return the groups without samples, and whole groups, that are not needed for a crash."""
        smallest = []
        for group in groups:
            needed = group
            for sample in sorted(group) if len(group) > 1 else ():
                rest = needed - {sample}
                if not rest or any(harmless(asked, answer, rest) for asked, answer in self.asked):
                    continue
                reason = f"does {listed(rest)} crash it without sample {sample}?"
                answer = yield from self._ask(curing - rest, "necessity", reason)
                if answer.outcome == "diverged":
                    needed = rest
                elif answer.outcome == "inconclusive":
                    self.exact = False
            smallest.append(needed)
        needed_groups = list(smallest)
        for group in smallest:
            others = [other for other in needed_groups if other is not group]
            if any(witness(asked, answer, group, others) for asked, answer in self.asked):
                continue
            reason = f"does the crash come back with {listed(group)} put back?"
            answer = yield from self._ask(union(others), "necessity", reason)
            if answer.outcome == "cured":
                needed_groups = others
            elif answer.outcome == "inconclusive":
                self.exact = False
        return needed_groups

    def _ask_placebo(self) -> _Asking[None]:
        """See that replacing as many innocent samples cures nothing; a crash of before will do."""
        culprits = union(self.groups)
        count = len(culprits)
        for asked, answer in self.asked:
            if answer.outcome == "diverged" and len(asked.replace - culprits) >= count:
                return
        at = self.control.onset or 0
        # From the same batch first, then from steps ever further before it, then after it.
        steps = sorted(self.control.shown, key=lambda step: (step > at, abs(step - at)))
        near = dict.fromkeys(chain.from_iterable(self.control.shown[step] for step in steps))
        chosen = [s for s in near if s not in culprits and s not in self.flags][:count]
        if not chosen:
            return
        reason = f"does it crash without as many innocent samples, {listed(chosen)}?"
        answer = yield from self._ask(chosen, "placebo", reason)
        if answer.outcome == "cured":
            raise _Ended(
                "not_data",
                f"other samples in place of {listed(chosen)}, which are innocent, cure it as well "
                f"as in place of {listed(culprits)}",
            )

    def _ask_other_state(self) -> _Asking[DataDecision]:
        """Show the culprits, each group in its own batch, to another state."""
        culprits = union(self.groups)
        told = f"it trains through without {listed(culprits)}"
        them = "it" if len(culprits) == 1 else "them"
        if not self.table.other_state:
            return self._decided("undecided", f"{told}; there is no other state to show {them} to")
        # In other company first: then it is known that the batch they came in has no part in it.
        for own_batch in (False, True):
            batches = tuple(self._batch_of(group) for group in self.groups)
            if not own_batch:
                batches = tuple(map(self._in_company, self.groups, batches))
            where = "their own batches" if own_batch else "other company"
            reason = f"does another state crash on {listed(culprits)} in {where} too?"
            answer = yield from self._ask(culprits, "other_state", reason, show=batches)
            if soon_after(answer, len(batches)):
                also = ", but only in the batches they came in" if own_batch else ""
                why = f"{told}, and another state crashes on {them} too{also}"
                return self._decided("bad_data", why, company=own_batch)
        if answer.outcome != "inconclusive":
            why = f"{told}, but another state can take {them}: the state was fragile"
            return self._decided("hard_batch_fragile_state", why)
        return self._decided("undecided", f"{told}; another state could not be judged on {them}")

    def _batch_of(self, group: Group) -> tuple[int, ...]:
        """Return the first batch that held the whole group, else the group by itself."""
        for _, answer in self.asked:
            for step in sorted(answer.shown):
                if group <= set(answer.shown[step]):
                    return answer.shown[step]
        return tuple(sorted(group))

    def _in_company(self, group: Group, batch: Sequence[int]) -> tuple[int, ...]:
        """Return the batch with others, which the control survived, in place of all but the group.

        The batch itself when the control showed too few others before it crashed.
        """
        others = iter(sorted(self.survived - union(self.groups) - set(batch) - set(self.flags)))
        return tuple(s if s in group else next(others, s) for s in batch)

    def _decided(self, verdict: DataVerdict, why: str, *, company: bool = False) -> DataDecision:
        groups = [] if verdict == "not_data" else self.groups
        samples = tuple(sorted(union(groups)))
        if verdict == "undecided" and not samples:
            samples = smallest_cure(self.asked)
        return DataDecision(
            verdict=verdict,
            samples=samples,
            exact=self.exact and bool(groups),
            joint=company or any(len(group) > 1 for group in groups),
            groups=tuple(sorted(tuple(sorted(group)) for group in groups)),
            why=why,
            replays=len(self.asked) - 1,
        )


def _hit(sites: Sequence[Site], answer: DataAnswer) -> Site | None:
    """Return the site that a replay crashed at, None when it did not crash."""
    if answer.outcome != "diverged":
        return None
    assert answer.onset is not None
    reached = [site for site in sites if site.first - 1 <= answer.onset]
    return reached[-1] if reached else sites[0]
