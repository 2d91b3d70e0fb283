"""Whether the crash comes back by itself, and whether next to nothing keeps it away."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from bisection.scripted_facts import control, facts, placebos, shown
from bisection.scripted_runs import RUN, SUDDEN
from bisection.scripted_world import ONSET, divergence

from stabexp.bisection.evidence import reproduction
from stabexp.bisection.facts import NOTHING

SILENT = replace(divergence(), detector=NOTHING)


@pytest.mark.parametrize(
    ("yes", "given", "says"),
    [
        (True, facts(), "equal bit for bit up to the divergence"),
        (True, facts(controls=(control(), control(0))), "from step 30 and 0"),
        (
            True,
            facts(controls=(control(mismatch=43, mismatch_field="digest"),)),
            "bit for bit up to step 42, past the onset at step 40",
        ),
        (False, facts(controls=(control(mismatch=40, mismatch_field="loss"),)), "at step 40, in"),
        (
            False,
            facts(
                controls=(
                    control(mismatch=3, mismatch_field="digest", mismatch_tensor="head.weight"),
                )
            ),
            "in digest (head.weight), before the onset",
        ),
        (False, facts(controls=(control(divergence=divergence(47)),)), "diverged at step 47"),
        (
            False,
            facts(controls=(control(), control(0, divergence=None))),
            "from step 0 stayed stable",
        ),
        (None, facts(controls=()), "no unchanged replay"),
        (
            None,
            facts(controls=(control(divergence=None, last_step=29, note="no memory"),)),
            "could not be run to step 46: no memory",
        ),
        (
            True,
            facts(controls=(control(divergence=None),), divergence=SILENT),
            "every figure is equal",
        ),
        (
            False,
            facts(controls=(control(divergence=None, mismatch=33),), divergence=SILENT),
            "first differs at step 33",
        ),
    ],
)
def test_the_crash_comes_back_when_every_unchanged_replay_is_equal_up_to_it(yes, given, says):
    answer = reproduction.control(given)
    assert answer.yes is yes, answer.detail
    assert says in answer.detail


@pytest.mark.parametrize(
    ("letters", "rate", "order"),
    [
        pytest.param("dd", "no", "no", id="neither"),
        pytest.param("cd", "yes", "no", id="a slightly lower rate cures"),
        pytest.param("dc", "no", "yes", id="another order cures"),
        pytest.param("cc", "yes", "yes", id="both"),
        pytest.param("ls", "no", "no", id="later, or without learning, is no cure"),
        pytest.param("id", "not tried", "no", id="no lower rate could be run"),
        pytest.param("di", "no", "not tried", id="no other order could be run"),
    ],
)
def test_a_lower_rate_and_another_order_are_asked_about_apart(letters, rate, order):
    given = facts(placebos=placebos(letters))
    assert reproduction.placebo(given).text == rate
    assert reproduction.order(given).text == order


def test_placebos_of_every_start_count():
    given = facts(placebos=(*placebos("dd"), *placebos("cd", start=0)))
    answer = reproduction.placebo(given)
    assert answer.yes
    assert answer.trials == (given.placebos[2].spec.key,)
    assert not facts(placebos=()).placebos
    assert reproduction.placebo(facts(placebos=())).text == "not tried"


SALTS = ("learning_rate 0.97", "shuffle 1", "shuffle 2", "shuffle 3")


@pytest.mark.parametrize(
    ("letters", "setup", "order"),
    [
        pytest.param("lldd", {}, "yes", id="half of them"),
        pytest.param("lddd", {}, "no", id="fewer"),
        pytest.param("lll", {}, "no", id="too few to tell"),
        pytest.param("llll", {"batch_size": 8}, "no", id="so few samples that it is chance"),
        pytest.param("dddc", {}, "yes", id="one that cures is enough"),
    ],
)
def test_a_crash_that_changes_too_small_to_matter_put_off_is_at_the_edge(letters, setup, order):
    shuffled = tuple(
        shown(letter, change, role="placebo")
        for letter, change in zip(letters, SALTS, strict=False)
    )
    answer = reproduction.order(facts(placebos=shuffled, setup=setup))
    assert answer.text == order, answer.detail


@pytest.mark.parametrize(("norm", "asked"), [(60.0, True), (40.0, False), (math.nan, True)])
def test_a_gradient_that_no_steady_growth_brings_came_at_once(norm, asked):
    run = [replace(r, grad_norm=norm if r.step == ONSET else r.grad_norm) for r in RUN]
    given = facts(records=run, placebos=placebos("dd"))
    assert reproduction.stands_out(given) == asked


@pytest.mark.parametrize(
    ("pattern", "order", "asked"),
    [
        ("sudden_jump", "d", True),
        ("unclear", "d", True),
        ("exponential_growth", "d", False),
        ("oscillating_divergence", "d", False),
        ("exponential_growth", "l", True),
        ("exponential_growth", "c", True),
    ],
)
def test_samples_are_asked_when_it_came_at_once_or_another_order_changes_it(pattern, order, asked):
    crash = replace(SUDDEN, pattern=pattern)
    given = facts(divergence=crash, placebos=placebos(f"d{order}"))
    assert reproduction.stands_out(given) == asked
    # The order may matter from one checkpoint and not from another.
    late = (*placebos("dd"), shown(order, "shuffle 1", role="placebo", start=0))
    assert reproduction.stands_out(replace(given, placebos=late)) == asked
