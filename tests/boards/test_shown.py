"""Which layers and which runs are on the board, and which series a run gives."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import bisected, everything, made_run, step

from stabexp.boards import METRICS, RunView, ShownRuns, Wanted
from stabexp.boards.layers import shown_layers
from stabexp.boards.shown_runs import spelled_runs, spelled_seconds
from stabexp.errors import ConfigError
from stabexp.tracking.run_directory import RunDirectory


@given(st.integers(0, 300), st.integers(2, 80))
def test_of_many_layers_as_many_as_the_limit_are_shown_the_ends_among_them(count, most):
    layers = [f"layer.{i}" for i in range(count)]
    shown = shown_layers(layers, most=most)
    assert len(shown) == min(count, most) == len(set(shown))
    assert shown == sorted(shown, key=layers.index)
    if layers:
        assert (shown[0], shown[-1]) == (layers[0], layers[-1])


@pytest.mark.parametrize(
    ("most", "patterns", "expected"),
    [
        pytest.param(9, (), ["a.1", "a.2", "b.1", "b.2"], id="all"),
        pytest.param(9, ("b.*",), ["b.1", "b.2"], id="by name"),
        pytest.param(9, ("*.1", "a.*"), ["a.1", "a.2", "b.1"], id="by either name"),
        pytest.param(2, (), ["a.1", "b.2"], id="the ends"),
        pytest.param(1, (), ["b.2"], id="the last"),
        pytest.param(0, (), [], id="none"),
    ],
)
def test_layers_are_chosen(most, patterns, expected):
    assert shown_layers(["a.1", "a.2", "b.1", "b.2"], most=most, patterns=patterns) == expected


def samples(view):
    view.refresh()
    return {(s.metric, *sorted(s.labels.items())): s.value for s in view.samples()}


def test_a_run_with_everything_gives_every_metric_with_its_labels(tmp_path):
    view = RunView(everything(tmp_path).path)
    view.refresh()
    given = list(view.samples())
    own = {name for name in METRICS if name.startswith("stabexp_exporter")}
    assert {sample.metric for sample in given} == METRICS.keys() - own
    for sample in given:
        assert {"run", *sample.labels} == set(METRICS[sample.metric].labels), sample


def test_of_layers_without_series_the_largest_figure_is_told_all_the_same(tmp_path):
    layers = {f"l{i}": {"grad_norm": 99.0 if i == 1 else 1.0} for i in range(5)}
    view = RunView(made_run(tmp_path, steps=[step(0, layers=layers)]).path, layers=2)
    found = samples(view)
    assert [key[1][1] for key in found if key[0] == "stabexp_layer_gradient_norm"] == ["l0", "l4"]
    assert found["stabexp_layers_gradient_norm_max",] == 99.0
    assert found["stabexp_layers_left_out",] == 3


@pytest.mark.parametrize(
    ("status", "diverged", "expected"),
    [
        pytest.param(None, False, "running", id="its process lives"),
        pytest.param("FINISHED", False, "finished", id="it came to its end"),
        pytest.param("FAILED", True, "diverged", id="a detector fired"),
        pytest.param("FAILED", False, "failed", id="its code raised"),
        pytest.param("KILLED", False, "killed", id="it was interrupted"),
    ],
)
def test_a_run_has_the_status(tmp_path, status, diverged, expected):
    found = samples(RunView(made_run(tmp_path, status=status, diverged=diverged).path))
    states = {key[1][1]: value for key, value in found.items() if key[0] == "stabexp_run_status"}
    assert [state for state, value in states.items() if value] == [expected]
    assert len(states) == 5


def test_a_run_whose_process_died_without_a_word_is_killed(tmp_path):
    code = (
        "from pathlib import Path; from made_runs import made_run;"
        f"made_run(Path({str(tmp_path)!r}))"
    )
    folder = os.path.dirname(sys.modules["made_runs"].__file__)
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": folder}
    )
    assert RunView(tmp_path / "runs" / "run-1").status == "running"  # nothing was read yet
    assert samples(RunView(tmp_path / "runs" / "run-1"))["stabexp_run_status", ("status", "killed")]


def test_events_are_counted_as_they_come(tmp_path):
    directory = made_run(tmp_path, steps=[step(0)])
    view = RunView(directory.path)
    alarm = {"step": 0, "by": "monitors", "alarm": "gradient explodes", "message": "x"}
    for count in (1, 2):
        directory.log_event(alarm)
        assert samples(view)["stabexp_alarms", ("alarm", "gradient explodes")] == count


def test_the_newest_bisect_is_the_one_that_is_told(tmp_path):
    directory = made_run(tmp_path, status="FAILED", diverged=True)
    bisected(directory, 9, cause="data")
    bisected(directory, 10, cause="schedule")
    told = [
        dict(key[1:]) for key in samples(RunView(directory.path)) if key[0] == "stabexp_verdict"
    ]
    assert [each["cause"] for each in told] == ["schedule"]


@pytest.mark.parametrize("name", ["divergence.json", "steps.jsonl", "recovery.json", "run.json"])
def test_a_damaged_file_is_told_and_hides_nothing_else(tmp_path, name):
    directory = everything(tmp_path)
    (directory.path / name).write_text("{damaged\nmore\n")
    view = RunView(directory.path)
    found = samples(view)
    assert found["stabexp_run_readable",] == 0
    assert name in view.problem
    assert any(key[0] == "stabexp_alarms" for key in found)


class Clock:
    def __init__(self):
        self.seconds = time.time()

    def __call__(self):
        return self.seconds


def test_a_run_that_ended_stays_for_an_hour_and_is_gone_then(tmp_path):
    made_run(tmp_path, "over", steps=[step(0)], status="FINISHED")
    made_run(tmp_path, "going", steps=[step(0)])
    clock = Clock()
    shown = ShownRuns(Wanted(root=tmp_path), now=clock)
    assert [view.run_id for view in shown.refresh()] == ["over", "going"]
    clock.seconds += 3601
    assert [view.run_id for view in shown.refresh()] == ["going"]


def test_a_run_that_comes_back_is_shown_whole(tmp_path):
    directory = made_run(tmp_path, steps=[step(0)], status="FINISHED")
    clock = Clock()
    shown = ShownRuns(Wanted(root=tmp_path), now=clock)
    shown.refresh()
    (view,) = shown._known.values()
    assert view.steps.made == 1
    clock.seconds += 3601
    assert shown.refresh() == []
    assert view.steps.made == 0  # nothing is kept of what is not shown
    RunDirectory.open(directory.path).resume()
    (view,) = shown.refresh()
    assert (view.status, view.steps.made) == ("running", 1)


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        pytest.param("all", ["a-1", "a-2", "b-1"], id="all"),
        pytest.param(("a-",), ["a-1", "a-2"], id="by the beginning of an id"),
        pytest.param(("b-1", "a-2"), ["a-2", "b-1"], id="two of them"),
        pytest.param(("c",), [], id="one that is not there yet"),
    ],
)
def test_runs_are_chosen(tmp_path, runs, expected):
    for name in ("a-1", "a-2", "b-1"):
        made_run(tmp_path, name, status="FINISHED")
    shown = ShownRuns(Wanted(root=tmp_path, runs=runs), now=lambda: time.time() + 10**6)
    assert [view.run_id for view in shown.refresh()] == expected


def test_of_too_many_runs_the_newest_are_shown_and_the_others_counted(tmp_path):
    for number in range(4):
        made_run(tmp_path, f"run-{number}", status="FINISHED")
    shown = ShownRuns(Wanted(root=tmp_path, most_runs=3))
    assert [view.run_id for view in shown.refresh()] == ["run-1", "run-2", "run-3"]
    assert shown.left_out == 1


def test_a_root_that_is_not_there_has_no_runs(tmp_path):
    assert ShownRuns(Wanted(root=tmp_path / "none")).refresh() == []


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("1.5h", 5400), ("7d", 604_800)]
)
def test_a_time_is_read(text, seconds):
    assert spelled_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "-1h", "2 weeks"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ConfigError, match="--keep"):
        spelled_seconds(text)


def test_no_run_at_all_is_refused():
    with pytest.raises(ConfigError, match="--runs"):
        spelled_runs(" , ")
