"""Every figure of the page against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from experiments.benchmark import score
from experiments.benchmark.draws import all_draws
from experiments.benchmark.page import confusion_table, write_page
from experiments.benchmark.results import Grid, Result, read_results, write_result
from experiments.benchmark.run import run_all


def result(name="a", cause="data", found="data", **values):
    defaults = {
        "name": name,
        "entry": "nan_sample",
        "family": "mlp",
        "cause": cause,
        "found": found,
        "onset": 100,
        "detected": 104,
        "confidence": 0.9,
        "replays": 6,
        "replayed_steps": 210,
    }
    return Result(**defaults | values)


@pytest.mark.parametrize(
    ("hits", "count", "low", "high"),
    [
        pytest.param(0, 10, 0.0, 0.2775, id="none"),
        pytest.param(10, 10, 0.7225, 1.0, id="all"),
        pytest.param(81, 263, 0.2553, 0.3662, id="Newcombe 1998, table I"),
        pytest.param(0, 0, 0.0, 1.0, id="nothing tried"),
    ],
)
def test_wilson_interval(hits, count, low, high):
    assert score.Share(hits=hits, count=count).interval == pytest.approx((low, high), abs=1e-4)


def test_another_cause_that_counts_is_right_and_so_is_its_family():
    either = result(cause="implementation", found="data", also=("data",))
    assert either.right
    assert either.family_right
    near = result(cause="learning_rate", found="warmup")
    assert not near.right
    assert near.family_right


@pytest.mark.parametrize(
    ("cause", "found", "blamed"),
    [
        pytest.param("healthy", "healthy", False, id="left alone"),
        pytest.param("marginal", "inconclusive", False, id="abstained"),
        pytest.param("marginal", "learning_rate", True, id="blamed a setting"),
        pytest.param("joint", "joint", False, id="both named"),
        pytest.param("joint", "data", True, id="one of two named"),
        pytest.param("not_reproduced", "joint", True, id="blamed two"),
    ],
)
def test_blame_where_there_may_be_none(cause, found, blamed):
    assert result(cause=cause, found=found, spare=True).wrongly_blamed is blamed


def test_runs_that_did_not_diverge_are_in_no_share():
    quiet = result(onset=None, detected=None, found="healthy")
    assert score.faults([quiet, result()]) == [result()]
    healthy = result(cause="healthy", found="healthy", spare=True, onset=None, detected=None)
    lost = result(cause="joint", found="healthy", spare=True, onset=None, detected=None)
    assert score.spares([healthy, lost]) == [healthy]


def test_simpler_ways_to_name_a_cause():
    cured = result(
        cause="clip_norm",
        telemetry="clip_norm",
        grid=Grid(cures=("learning_rate", "clip_norm"), replays=11, steps=2100),
    )
    assert score.always_learning_rate(cured) == 0
    assert score.first_cure(cured) == 0
    assert score.random_cure(cured) == 0.5
    assert score.telemetry_only(cured) == 1
    assert score.grid_saving([cured]) == 10
    uncured = result(cause="inconclusive", grid=Grid(cures=(), replays=11, steps=1))
    assert score.first_cure(uncured) == score.random_cure(uncured) == 1


def test_calibration_error_is_the_weighted_distance():
    right = [result(name=str(i), confidence=0.92) for i in range(8)]
    wrong = [result(name=f"w{i}", confidence=0.62, found="warmup") for i in range(2)]
    bins = score.reliability([*right, *wrong])
    assert [one.count for one in bins] == [2, 8]
    assert score.calibration_error(bins) == pytest.approx(0.2 * 0.62 + 0.8 * 0.08)
    assert math.isnan(score.calibration_error([]))


def test_costs_are_medians_by_length_with_all_runs_last():
    short = result(detected=9, replayed_steps=100)
    found = score.costs([short, result(), result(replayed_steps=420)])
    assert [(cost.low, cost.count) for cost in found] == [(0, 1), (50, 2), (0, 3)]
    assert found[1].ratio == pytest.approx((2 + 4) / 2)


def test_onset_counts_within_two_steps():
    hits = [result(strikes=98), result(strikes=103), result(strikes=None)]
    assert score.onset_error(hits) == score.Share(hits=1, count=2)


def test_the_confusion_matrix_has_a_row_per_known_cause():
    table = confusion_table([result(), result(found="warmup")]).splitlines()
    assert table == ["| known | data | warmup |", "|---|---|---|", "| data | 1 | 1 |"]


def test_the_page_names_no_wrong_verdict_of_a_held_out_program():
    page = write_page([result(name="secret", found="warmup", held_out=True), result(name="open")])
    assert "secret" not in page
    assert "1 more in the held-out families" in page


def test_a_result_is_read_back_as_it_was_written(tmp_path):
    kept = result(grid=Grid(cures=("warmup",), replays=3, steps=9), trials=({"role": "control"},))
    write_result(kept, tmp_path)
    assert read_results(tmp_path) == [kept]


def test_half_a_result_left_by_a_kill_is_not_read(tmp_path):
    (tmp_path / "a.part123").write_text("{", "utf-8")
    assert read_results(tmp_path) == []


def test_draws_that_have_a_result_are_not_run_again(tmp_path):
    draws = all_draws()[:2]
    for draw in draws:
        write_result(result(name=draw.name), tmp_path)
    assert list(run_all(draws, work=tmp_path, jobs=1, grid=False)) == []
