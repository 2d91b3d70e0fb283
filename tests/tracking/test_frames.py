"""Tables of steps, layers, samples and events: exact, tidy, alike whatever they are made of."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from stabexp.records import StepRecord, TrialRecord, TrialSpec
from stabexp.tracking import frames
from stabexp.tracking.step_columns import columns_of, read_columns
from stabexp.tracking.step_log import StepLog


def step(number, **values):
    usual = {"time": 10.0 + number, "loss": 1.0 / (1 + number), "lr": 0.1, "grad_norm": 2.0}
    return StepRecord(step=number, **{**usual, **values})


def layers(*names, **figures):
    return dict.fromkeys(names, figures)


RECORDS = [
    step(0, sample_ids=(7, 3), batch_size=2, digest="a" * 16, metrics={"acc": 0.5}),
    step(1, loss=math.nan, layers=layers("fc1", "metrics", grad_norm=1.0, weight_norm=2.0)),
    step(2, loss=math.inf, loss_scale=8.0, skipped=True, nonfinite_grads=3),
    step(3, layers={"fc2": {"grad_norm": math.inf}, "fc1": {"grad_norm": math.nan}}),
    step(4, layers=layers("fc1", "metrics", grad_norm=3.0, weight_norm=4.0), metrics={"acc": 0.75}),
]


@pytest.fixture
def log(tmp_path):
    """Write records into a step log and return its file."""

    def call(records, *, rewound=None):
        with_log = StepLog(tmp_path / "steps.jsonl")
        for record in records:
            with_log.append(record)
        if rewound is not None:
            with_log.rewind(rewound)
        with_log.close()
        return tmp_path / "steps.jsonl"

    return call


@pytest.mark.parametrize("whole", [True, False])
def test_a_log_gives_the_same_steps_as_its_records(log, whole):
    read = frames.steps_frame(read_columns(log(RECORDS), layers=whole))
    pd.testing.assert_frame_equal(read, frames.steps_frame(RECORDS))


def test_numbers_that_are_none_are_kept():
    loss = frames.steps_frame(RECORDS)["loss"]
    assert loss.dtype == np.float64
    assert math.isnan(loss[1])
    assert math.isinf(loss[2])


def test_what_not_every_step_has_is_nullable_and_counts_are_whole():
    frame = frames.steps_frame(RECORDS)
    assert frame["metrics/acc"].isna().tolist() == [False, True, True, True, False]
    assert frame["loss_scale"].isna().tolist() == [True, True, False, True, True]
    kinds = {name: str(frame[name].dtype) for name in ("nonfinite_grads", "skipped", "digest")}
    assert kinds == {"nonfinite_grads": "int64", "skipped": "bool", "digest": "str"}
    assert str(frames.steps_frame(RECORDS[:1])["metrics/acc"].dtype) == "float64"


def test_layers_are_one_row_per_step_and_layer_in_the_order_of_the_model(log):
    frame = frames.layers_frame(read_columns(log(RECORDS)))
    pd.testing.assert_frame_equal(frame, frames.layers_frame(RECORDS))
    assert frame["layer"].cat.categories.tolist() == ["fc1", "metrics", "fc2"]
    assert list(zip(frame["step"], frame["layer"], strict=True)) == [
        (1, "fc1"),
        (1, "metrics"),
        (3, "fc1"),
        (3, "fc2"),
        (4, "fc1"),
        (4, "metrics"),
    ]
    assert frame["grad_norm"].tolist()[:2] == [1.0, 1.0]
    assert math.isnan(frame["grad_norm"][2])
    assert math.isinf(frame["grad_norm"][3])
    assert frame["weight_norm"].isna().tolist() == [False, False, True, True, False, False]


def test_a_run_that_measured_no_layers_has_a_table_without_rows():
    frame = frames.layers_frame(RECORDS[:1])
    assert list(frame.columns) == ["step", "layer"]
    assert frame.empty


def test_samples_are_one_row_per_use():
    frame = frames.sample_ids_frame(columns_of([RECORDS[0], step(1), step(2, sample_ids=(3,))]))
    assert frame.to_dict("list") == {"step": [0, 0, 2], "place": [0, 1, 0], "sample": [7, 3, 3]}


@pytest.mark.parametrize("whole", [True, False])
def test_of_a_step_that_was_run_twice_the_last_counts(log, whole):
    file = log(RECORDS, rewound=3)
    with_more = StepLog(file)
    again = [
        step(3, loss=9.0, layers=layers("fc1", grad_norm=7.0), metrics={"f1": 1.0}),
        step(4, loss=8.0, layers=layers("fc1", "metrics", grad_norm=5.0, weight_norm=6.0)),
    ]
    for record in again:
        with_more.append(record)
    with_more.close()
    columns = read_columns(file, layers=whole)
    expected = [*RECORDS[:3], *again]
    pd.testing.assert_frame_equal(frames.steps_frame(columns), frames.steps_frame(expected))
    if whole:
        pd.testing.assert_frame_equal(frames.layers_frame(columns), frames.layers_frame(expected))


def test_a_step_that_comes_twice_without_a_word_counts_once(log):
    again = step(1, loss=5.0, layers=layers("fc1", "metrics", grad_norm=9.0, weight_norm=9.0))
    columns = read_columns(log([*RECORDS, again]))
    assert frames.steps_frame(columns)["loss"][1] == 5.0
    frame = frames.layers_frame(columns)
    assert frame[frame["step"] == 1]["grad_norm"].tolist() == [9.0, 9.0]


@pytest.mark.parametrize("whole", [True, False])
def test_a_torn_last_line_is_left_out_and_damage_before_it_is_told(log, whole):
    file = log(RECORDS)
    text = file.read_bytes()
    file.write_bytes(text[:-20])
    assert len(frames.steps_frame(read_columns(file, layers=whole))) == 4
    file.write_bytes(text.replace(b'{"step":2', b'"step":2'))
    with pytest.raises(Exception, match=r"steps.jsonl:3: not a line of JSON"):
        read_columns(file, layers=whole)


def test_a_run_without_steps_has_the_same_columns(tmp_path):
    frame = frames.steps_frame(read_columns(tmp_path / "none.jsonl", layers=False))
    assert frame.empty
    assert list(frame.columns) == [*frames.steps_frame(RECORDS).columns[:-1]]


def trial(number, role, outcome, **spec):
    made = TrialSpec(role=role, from_step=2, until_step=5, **spec)
    return TrialRecord(spec=made, outcome=outcome, last_step=4, number=number, name=f"{number:02d}")


def test_trials_and_their_steps_share_their_numbers_and_categories():
    records = [trial(0, "control", "diverged"), trial(1, "dose", "cured")]
    table = frames.trials_frame(records)
    assert str(table["outcome"].dtype) == "category"
    assert table["onset"].isna().all()
    assert str(table["onset"].dtype) == "Int64"
    steps = frames.trial_steps_frame((record, columns_of(RECORDS[2:])) for record in records)
    assert steps.groupby("trial")["step"].agg(list).to_dict() == {0: [2, 3, 4], 1: [2, 3, 4]}
    joined = steps.merge(table[["number", "outcome"]], left_on="trial", right_on="number")
    assert (joined["outcome_x"] == joined["outcome_y"]).all()
    assert frames.trials_frame([]).columns.tolist() == list(frames.TRIAL_COLUMNS)
    assert frames.trial_steps_frame([]).columns.tolist() == steps.columns.tolist()[:-1]


def test_events_keep_what_only_some_of_them_say():
    events = [{"step": 3, "by": "monitors", "message": "high", "limit": 2.0}, {"message": "late"}]
    frame = frames.events_frame(events)
    assert frame.columns.tolist() == ["step", "by", "message", "limit"]
    assert frame["step"].isna().tolist() == [False, True]
    assert frames.events_frame([]).columns.tolist() == ["step", "by", "message"]
