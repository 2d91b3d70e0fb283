"""What is repaired in a log, and that it is said: repeated, unsorted, missing points and more."""

from __future__ import annotations

import math

import pytest
from diagnosis.conftest import calm
from hypothesis import given
from hypothesis import strategies as st

import stabexp
from stabexp.diagnosis.curves import ordered
from stabexp.diagnosis.hidden_nan import unhidden
from stabexp.diagnosis.log import Series
from stabexp.errors import ConfigError


def series(*points):
    made = Series()
    for step, value in points:
        made.add(step, value)
    return made


@pytest.mark.parametrize(
    ("written", "kept", "said"),
    [
        pytest.param([(0, 1), (1, 2)], {0: 1, 1: 2}, "", id="nothing to repair"),
        pytest.param([(0, 1), (0, 2), (1, 3)], {0: 2, 1: 3}, "twice in a row", id="written twice"),
        pytest.param([(0, 5), (0, 6), (0, 7)], {0: 5, 1: 6, 2: 7}, "none is given", id="no steps"),
        pytest.param([(2, 3), (0, 1), (1, 2)], {0: 1, 1: 2, 2: 3}, "not in order", id="unsorted"),
        pytest.param(
            [(0, 1), (10, 2), (20, 3), (30, 4), (10, 5), (20, 6)],
            {0: 1, 10: 5, 20: 6},
            "goes back from step 30 to 10",
            id="a resumed run voids what its first life wrote beyond",
        ),
    ],
)
def test_points_come_in_step_order_once_each(written, kept, said):
    points, notes = ordered(series(*written))
    assert points == kept
    assert list(points) == sorted(points)
    assert (said in " ".join(notes)) if said else notes == []


@given(st.lists(st.tuples(st.integers(0, 12), st.floats(allow_nan=False)), max_size=40))
def test_whatever_was_written_steps_come_sorted_and_the_last_value_of_each_counts(written):
    points, _ = ordered(series(*written))
    assert list(points) == sorted(set(points))
    if len({step for step, _ in written}) > 1:
        assert points.items() <= dict(written).items()
        assert written[-1][0] in points


NAN = math.nan


@pytest.mark.parametrize(
    ("losses", "norms", "trainer", "nan_at"),
    [
        pytest.param([2, 2, 0.0, 0.0], [1, 1, NAN, NAN], False, {2, 3}, id="with norms of NaN"),
        pytest.param([2, 1, 0.0, 0.0], [1, 1, 0.1, 0.0], True, set(), id="learned to the end"),
        pytest.param([2, 2, 0.0, 0.0], None, True, {2, 3}, id="an old Trainer without norms"),
        pytest.param([2, 2, 0.0, 1.0], None, True, set(), id="zero once"),
        pytest.param([1, 1e-4, 0.0, 0.0], None, True, set(), id="near zero before"),
        pytest.param([2, 2, 0.0, 0.0], None, False, set(), id="zeros of a plain loop"),
    ],
)
def test_a_loss_of_zero_is_a_hidden_nan_when_it_cannot_be_one(losses, norms, trainer, nan_at):
    shown, said = unhidden(dict(enumerate(losses)), dict(enumerate(norms or [])), trainer=trainer)
    assert {step for step, loss in shown.items() if math.isnan(loss)} == nan_at
    assert bool(said) == bool(nan_at)


def test_a_nan_that_the_trainers_sum_kept_is_not_used():
    losses = {step: 2.0 if step < 10 else NAN for step in range(20)}
    shown, said = unhidden(losses, dict.fromkeys(range(20), 1.0), trainer=True)
    assert list(shown) == list(range(10))
    assert "running sum" in said[0]


def diagnosed(write, header, rows, **options):
    text = header + "\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)
    return stabexp.diagnose(write("log.csv", text), **options)


def test_steps_that_start_anew_in_each_epoch_are_counted_on(write):
    losses = calm(60)
    rows = [(i // 20, i % 20, loss) for i, loss in enumerate(losses)]
    found = diagnosed(write, "epoch,step,loss", rows)
    assert (found.first_step, found.last_step) == (0, 59)
    assert "start anew in each epoch (3 of them)" in found.warnings[0]


def test_a_stretch_without_points_is_said(write):
    rows = [(i if i < 20 else i + 500, loss) for i, loss in enumerate(calm(40))]
    found = diagnosed(write, "step,loss", rows)
    assert found.warnings == ("'loss' has no points between step 19 and step 520",)


def test_cells_that_pandas_left_empty_at_the_end_are_nan(write):
    losses = [*calm(40), "", "", ""]
    found = diagnosed(write, "step,loss,lr", [(i, v, 0.1) for i, v in enumerate(losses)])
    assert found.divergence.onset == 40
    assert "pandas" in found.warnings[0]


def test_cells_that_were_empty_between_losses_all_along_are_not(write):
    rows = [(i, v if i % 4 == 0 else "", 0.1) for i, v in enumerate(calm(79))]
    found = diagnosed(write, "step,loss,lr", rows)
    assert (found.status, found.interval, found.warnings) == ("healthy", 4, ())


def test_clipped_gradient_norms_are_recognised_and_not_judged(write):
    rows = [(i, v, min(1.0, 0.5 + 0.02 * i)) for i, v in enumerate(calm(60))]
    found = diagnosed(write, "step,loss,grad_norm", rows)
    judged = {check.detector: check.judged for check in found.checks}
    assert judged == {"non_finite": True, "divergence": True, "gradient_explosion": False}
    assert "after clipping" in found.warnings[0]


@pytest.mark.parametrize("name", ["loss", "Loss/TRAIN"])
def test_a_curve_named_by_the_user_is_taken(write, name):
    rows = [(i, v, 9.0) for i, v in enumerate(calm(20))]
    found = diagnosed(write, "step,loss train,loss", rows, loss=name)
    assert found.used[0].name == ("loss" if name == "loss" else "loss train")


@pytest.mark.parametrize(
    ("header", "options", "message"),
    [
        ("step,val_loss", {}, "surely the training loss; if it is one of 'val_loss'"),
        ("step,actor_loss", {}, "--loss NAME"),
        ("step,accuracy", {}, "no training loss found; there are 'accuracy'"),
        ("step,loss", {"loss": "los"}, "--loss los: no such curve; there are 'loss'"),
        ("step,loss", {"grad_norm": "gn"}, "--grad-norm gn: no such curve"),
        ("step,loss", {"lr": "rate"}, "--lr rate: no such curve"),
    ],
)
def test_a_curve_that_is_not_there_is_an_error_that_says_what_is(write, header, options, message):
    with pytest.raises(ConfigError, match=r"log\.csv") as refused:
        diagnosed(write, header, list(enumerate(calm(20))), **options)
    assert message in str(refused.value)


PUBLIC = [
    pytest.param(
        '"Step","sunny-tree-3 - train/loss","sunny-tree-3 - train/loss__MIN"\n',
        '"{i}","{loss}","0"\n',
        "sunny-tree-3 - train/loss",
        id="an export of Weights & Biases",
    ),
    pytest.param("epoch,loss,val_loss\n", "{i},{loss},1.5\n", "loss", id="Keras' CSVLogger"),
    pytest.param(
        "",
        '{{"epoch": 1, "update": 0.1, "loss": "{loss}", "num_updates": "{i}", "gnorm": "4.2"}}\n',
        "loss",
        id="fairseq",
    ),
    pytest.param(
        "",
        '{{"_step": {i}, "_runtime": 5, "train": {{"loss": {loss}}}, "val": {{"loss": 9}}}}\n',
        "train/loss",
        id="nested objects",
    ),
]


@pytest.mark.parametrize(("header", "row", "name"), PUBLIC)
def test_the_loss_is_found_in(write, header, row, name):
    text = header + "".join(row.format(i=i, loss=loss) for i, loss in enumerate(calm(40)))
    found = stabexp.diagnose(write("log", text))
    assert (found.used[0].name, found.used[0].points, found.last_step) == (name, 40, 39)
    assert found.status == "healthy"
