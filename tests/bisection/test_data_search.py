"""Samples hidden in simulated runs are found exactly, within the replays that were promised."""

from __future__ import annotations

import dataclasses
import sys

import pytest
from bisection.sample_worlds import GOOD, World, hide, solve

from stabexp.bisection.data_case import (
    DataAnswer,
    DataQuestion,
    DataTable,
    SampleScore,
    answer_of,
    deviations,
    flagged,
    most_replays,
    scores_of,
    whole_batches,
)
from stabexp.bisection.data_search import decision, next_question
from stabexp.records import Divergence, StepRecord, TrialRecord, TrialSpec

WINDOWS = [(w, b) for w in (8, 64, 512) for b in (1, 8, 64)]
HELPFUL = {
    "one": ((1,), {}),
    "two": ((1, 1), {}),
    "three": ((1, 1, 1), {}),
    "two among decoys": ((1, 1), {"decoys": 3}),
    "two that come up again": ((1, 1), {"passes": 1.5}),
    "a pair that stands out": ((2,), {}),
}
"""Faults that the scan helps with: sizes of the groups that crash together, and the world."""
BLIND = {
    "one, no scan": ((1,), {"scanned": False}),
    "two, no scan": ((1, 1), {"scanned": False}),
    "three, no scan": ((1, 1, 1), {"scanned": False}),
    "one that the scan does not see, among decoys": ((1,), {"visible": False, "decoys": 4}),
    "two that come up again, no scan": ((1, 1), {"scanned": False, "passes": 1.5}),
    "a pair, no scan": ((2,), {"scanned": False}),
    "a pair that the scan does not see, among decoys": ((2,), {"visible": False, "decoys": 2}),
    "a pair and one more, no scan": ((2, 1), {"scanned": False}),
    "one, always two steps late": ((1,), {"late": 1.0, "scanned": False}),
}
"""Faults that only the crashes themselves tell of."""


def tries(sizes, world, seeds):
    """Yield (right, replays, promised, decision, world) for each fault that crashes the run."""
    for steps, batch in WINDOWS:
        if max(sizes) > batch:
            continue
        for seed in range(seeds if steps * batch <= 4096 else 1):
            made = World(steps=steps, batch=batch, seed=1000 * seed + steps + batch, **world)
            made = hide(made, sizes)
            found, questions = solve(made)
            if found is None:
                continue
            truth = tuple(sorted(tuple(sorted(group)) for group in made.groups))
            right = found.groups == truth and found.exact and found.verdict == "bad_data"
            right = right and found.joint == (max(sizes) > 1)
            assert found.replays == len(questions)
            yield right, len(questions), most_replays(steps, batch), found, made


def report(seeds):
    """Return lines with the share found exactly and the replays, for every kind of fault."""
    lines = []
    for name, (sizes, world) in (HELPFUL | BLIND).items():
        results = list(tries(sizes, world, seeds))
        count = len(results)
        replays = sorted(result[1] for result in results)
        lines.append(
            f"{name:50} {sum(r[0] for r in results):4} of {count:4} exact, "
            f"{sum(r[1] <= r[2] for r in results):4} within the promise, replays: "
            f"median {replays[count // 2]}, most {replays[-1]}"
        )
    return lines


def test_with_a_scan_they_are_found_exactly_and_within_the_promised_replays():
    results = [r for sizes, world in HELPFUL.values() for r in tries(sizes, world, 5)]
    assert len(results) >= 200
    wrong = [(found, made.groups) for right, _, _, found, made in results if not right]
    assert len(wrong) <= 0.05 * len(results), wrong
    over = [(asked, promised) for _, asked, promised, _, _ in results if asked > promised]
    assert len(over) <= 0.05 * len(results), over


def test_without_a_useful_scan_they_are_found_exactly_too():
    results = [r for sizes, world in BLIND.values() for r in tries(sizes, world, 2)]
    assert len(results) >= 100
    wrong = [(found, made.groups) for right, _, _, found, made in results if not right]
    assert len(wrong) <= 0.05 * len(results), wrong
    assert max(asked for _, asked, _, _, _ in results) <= 36


def test_one_culprit_is_within_the_promise_even_without_a_scan():
    results = list(tries(*BLIND["one, no scan"], 6))
    assert sum(asked <= promised for _, asked, promised, _, _ in results) >= 0.95 * len(results)


@pytest.mark.parametrize("world", [{"scanned": False}, {"decoys": 3}], ids=["no scan", "decoys"])
@pytest.mark.parametrize(("steps", "batch"), WINDOWS)
def test_a_crash_of_the_state_is_not_blamed_on_data_and_given_up_early(steps, batch, world):
    for seed in range(4 if steps * batch <= 4096 else 1):
        made = World(
            steps=steps, batch=batch, seed=seed, passes=0.1, state_step=GOOD + steps // 2, **world
        )
        found, questions = solve(made)
        assert (found.verdict, found.samples) == ("not_data", ()), found
        assert len(questions) <= 6


def test_a_hard_sample_that_another_state_can_take_is_not_called_bad():
    for batch in (1, 8, 64):
        found, questions = solve(hide(World(steps=64, batch=batch, seed=3, fragile=True), (1,)))
        assert found.verdict == "hard_batch_fragile_state"
        assert len(found.samples) == 1
        assert found.exact
        assert questions[-1].kind == "other_state"
        # The last word has the very batch that crashed the run.
        assert set(found.samples) <= set(questions[-1].show[0])


def test_a_later_crash_of_the_other_state_says_nothing_about_the_samples_shown_first():
    made = hide(World(steps=64, batch=8, seed=2), (1,))
    control = made.replay()

    def world(question):
        if not question.show:
            return made.replay(question.replace)
        return crash(150, {step: made.ids(step) for step in range(100, 151)})

    table = DataTable(control=control, dataset_size=made.size, scan=made.scan(control))
    found, _ = answer_all(table, world)
    assert found.verdict == "hard_batch_fragile_state"


def test_when_any_other_samples_cure_as_well_it_is_not_the_data():
    table = DataTable(
        control=crash(103, {step: (step,) for step in range(100, 105)}),
        dataset_size=50,
        scan={**{i: SampleScore(loss=1.0, grad_norm=1.0) for i in range(100, 110)}, 103: BROKEN},
    )
    found, kinds = answer_all(table, lambda question: DataAnswer(outcome="cured"))
    assert kinds == ["flagged", "placebo"]
    assert found.verdict == "not_data"
    assert "innocent" in found.why


def test_a_bad_sample_that_another_one_is_replaced_by_is_found_too():
    # 6 and 7 are both bad; in place of 6 its neighbour 7 is shown, which the run never reached.
    made = World(steps=64, batch=8, seed=5, scanned=False, late=0.0)
    at = made.ids(GOOD + 20)[3]
    made.groups = (frozenset({at}), frozenset({at + 1}))
    found, _ = solve(made)
    assert found.samples == (at, at + 1)
    assert found.exact


def test_replays_that_cannot_be_judged_cost_certainty_and_never_give_a_wrong_exact_answer():
    right = wrong = 0
    for seed in range(40):
        made = hide(World(steps=64, batch=8, seed=seed, scanned=False, unjudged=0.1), (1,))
        found, _ = solve(made)
        truth = tuple(sorted(i for group in made.groups for i in group))
        right += found.samples == truth
        wrong += found.exact and found.samples != truth
    assert not wrong
    assert right >= 34


def test_without_another_state_it_is_not_said_that_the_samples_are_bad():
    made = hide(World(steps=64, batch=8, seed=2), (1,))
    control = made.replay()
    table = DataTable(
        control=control, dataset_size=made.size, scan=made.scan(control), other_state=False
    )
    found, _ = answer_all(table, lambda question: made.replay(question.replace, question.show))
    assert found.verdict == "undecided"
    assert found.samples == tuple(made.groups[0])
    assert found.exact
    assert "no other state" in found.why


def test_a_search_that_is_cut_short_names_the_smallest_cure_so_far():
    made = hide(World(steps=64, batch=8, seed=2, scanned=False), (1,))
    table = DataTable(control=made.replay(), dataset_size=made.size)
    sizes = []
    while (question := next_question(table)) is not None:
        answer = made.replay(question.replace, question.show)
        table = dataclasses.replace(table, answers={**table.answers, question: answer})
        sizes.append(len(decision(table).samples))
        assert made.groups[0] <= set(decision(table).samples)
    assert sizes == sorted(sizes, reverse=True)


def test_a_run_that_does_not_crash_is_refused():
    with pytest.raises(ValueError, match="the unchanged replay is cured"):
        next_question(DataTable(control=DataAnswer(outcome="cured"), dataset_size=9))


BROKEN = SampleScore(loss=float("nan"), grad_norm=2.0)


def crash(onset, shown):
    return DataAnswer(outcome="diverged", onset=onset, detected=onset + 1, shown=shown)


def answer_all(table, world):
    kinds = []
    while (question := next_question(table)) is not None:
        kinds.append(question.kind)
        table = dataclasses.replace(table, answers={**table.answers, question: world(question)})
    return decision(table), kinds


def test_a_question_is_the_same_whatever_it_is_asked_for():
    one = DataQuestion(replace=frozenset({3}), kind="flagged", reason="a hint")
    other = DataQuestion(replace=frozenset({3}), kind="necessity", reason="a proof")
    assert one == other
    assert hash(one) == hash(other)


def step(index, ids, loss=1.0, grad_norm=1.0):
    return StepRecord(
        step=index, time=0.0, loss=loss, lr=0.1, grad_norm=grad_norm, sample_ids=tuple(ids)
    )


@pytest.mark.parametrize(
    ("outcome", "diverged", "expected"),
    [
        ("cured", False, "cured"),
        ("diverged", True, "diverged"),
        ("delayed", True, "diverged"),
        ("delayed", False, "inconclusive"),
        ("stalled", False, "inconclusive"),
        ("inconclusive", False, "inconclusive"),
    ],
)
def test_what_a_trial_says_about_samples(outcome, diverged, expected):
    found = Divergence(
        detector="loss_spike",
        detected=9,
        onset=7,
        pattern="sudden_jump",
        value=9.0,
        limit=3.0,
        message="the loss rose",
    )
    record = TrialRecord(
        spec=TrialSpec(role="data", from_step=5, until_step=20),
        outcome=outcome,
        last_step=9,
        divergence=found if diverged else None,
    )
    answer = answer_of(record, [step(5, [1, 2]), step(6, [3, 4])])
    assert answer.outcome == expected
    assert answer.shown == {5: (1, 2), 6: (3, 4)}
    assert (answer.onset, answer.detected) == ((7, 9) if diverged else (None, None))


def test_scores_belong_to_the_first_sample_of_each_batch_and_a_good_partner_counts():
    inf = float("inf")
    steps = [step(0, [3, 5], 2.0, inf), step(1, [17, 5], 9.0, 9.0), step(2, [3, 6], 1.0, 4.0)]
    assert scores_of(steps) == {
        3: SampleScore(loss=1.0, grad_norm=4.0),
        17: SampleScore(loss=9.0, grad_norm=9.0),
    }


def test_what_stands_out_is_flagged_worst_first():
    scan = {i: SampleScore(loss=1.0 + i / 10, grad_norm=2.0 + i / 5) for i in range(20)}
    assert flagged(deviations(scan)) == ()
    scan |= {30: SampleScore(loss=1.0, grad_norm=900.0), 31: BROKEN}
    scan |= {32: SampleScore(loss=1e5, grad_norm=1.0)}
    assert flagged(deviations(scan)) == (31, 32, 30)
    assert deviations(scan)[31] == float("inf")


def test_when_many_stand_out_none_is_flagged():
    scan = {i: SampleScore(loss=1.0, grad_norm=1.0) for i in range(40)}
    scan |= {i: SampleScore(loss=1e6, grad_norm=1e6) for i in range(40, 55)}
    assert flagged(deviations(scan)) == ()


def test_scores_of_too_few_samples_flag_only_what_is_not_finite():
    scan = {1: SampleScore(loss=1.0, grad_norm=1.0), 2: SampleScore(loss=1e9, grad_norm=1.0)}
    assert flagged(deviations(scan)) == ()
    assert flagged(deviations({**scan, 3: BROKEN})) == (3,)


def whole_world(batch=32, bad=32, steps=30, **more):
    """Return a run that one batch crashes, of which `bad` samples are broken."""
    made = World(steps=steps, batch=batch, seed=5, **more)
    ids = made.ids(GOOD + 12)
    made.groups = (frozenset(ids[:bad]),)
    return made


@pytest.mark.parametrize(("batch", "bad"), [(32, 32), (32, 20), (8, 8)])
def test_a_batch_that_is_broken_as_a_whole_is_named_as_one_in_few_replays(batch, bad):
    made = whole_world(batch, bad)
    found, questions = solve(made)
    assert found.verdict == "bad_data", found
    assert found.samples == tuple(sorted(made.groups[0]))
    assert not found.exact
    assert [question.kind for question in questions] == ["flagged", "placebo", "other_state"]


def test_a_broken_batch_that_another_state_can_take_is_not_called_bad():
    found, _ = solve(whole_world(fragile=True))
    assert found.verdict == "hard_batch_fragile_state", found


CALM_IDS = {step: tuple(range(32 * step, 32 * step + 32)) for step in range(10)}


def standing(*ids):
    return {i: 9.0 if i in ids else 0.0 for batch in CALM_IDS.values() for i in batch}


def test_of_a_broken_batch_those_that_are_raised_but_do_not_stand_out_are_named_too():
    z = standing(*CALM_IDS[4][:20]) | dict.fromkeys(CALM_IDS[4][20:24], 3.0) | {7: 3.0}
    assert whole_batches(z, CALM_IDS) == CALM_IDS[4][:24]


@pytest.mark.parametrize(
    ("out", "found"),
    [
        pytest.param(CALM_IDS[4], CALM_IDS[4], id="one batch"),
        pytest.param(CALM_IDS[4][:17], CALM_IDS[4][:17], id="most of a batch"),
        pytest.param((*CALM_IDS[4], *CALM_IDS[5]), (*CALM_IDS[4], *CALM_IDS[5]), id="two in a row"),
        pytest.param((*CALM_IDS[4], 3), CALM_IDS[4], id="a batch, and one sample elsewhere"),
        pytest.param(CALM_IDS[4][:16], (), id="half a batch"),
        pytest.param((*CALM_IDS[4], *CALM_IDS[8]), (), id="two far apart"),
        pytest.param((*CALM_IDS[4], 3, 70, 200), (), id="a batch, and a tail"),
        pytest.param(range(0, 320, 9), (), id="a tail all over the window"),
        pytest.param(range(128), (), id="too much of the window"),
    ],
)
def test_whole_batches_are_told_from_a_long_tail(out, found):
    assert whole_batches(standing(*out), CALM_IDS) == tuple(found)


if __name__ == "__main__":
    print(*report(int(sys.argv[1]) if len(sys.argv) > 1 else 8), sep="\n")
