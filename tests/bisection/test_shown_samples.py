"""Which samples a bisect keeps to be shown, and which of them in the end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stabexp.bisection.shown_samples import VIEWS, chosen, looked_at, views_of_trials, write_views
from stabexp.records import Change, SamplePart, SampleView, StepRecord, TrialSpec
from stabexp.tracking import RunDirectory


def step(number, *ids, loss=1.0, grad_norm=1.0):
    return StepRecord(step=number, time=0.0, loss=loss, lr=0.1, grad_norm=grad_norm, sample_ids=ids)


def spec(role, *changes):
    return TrialSpec(role=role, changes=changes, from_step=0, until_step=9)


def view(sample, *, blamed=True, unusual="", stood_out=False):
    part = SamplePart(name="0", kind="numbers", unusual=unusual)
    return SampleView(sample=sample, blamed=blamed, parts=(part,), stood_out=stood_out)


SCANNED = [step(i, 40 + i, loss=1.0 + 0.01 * i) for i in range(30)]
USED = [step(i, 2 * i, 2 * i + 1) for i in range(30)]


def test_of_a_scan_what_stands_out_and_the_most_usual_beside_it():
    bad = step(30, 99, loss=float("nan"))
    scanned = [replace(each, grad_norm=each.loss) for each in SCANNED]
    wanted = looked_at(spec("scan"), [*scanned, bad], {})
    assert wanted.suspects == (99,)
    assert set(wanted.ordinary[:2]) <= {54, 55}  # the middle of the losses


@pytest.mark.parametrize(
    ("trial", "findings", "suspects"),
    [
        pytest.param(
            spec("data", Change(variable="replace_samples", dose="12,55")), {}, (12, 55), id="few"
        ),
        pytest.param(
            spec("data", Change(variable="replace_samples", dose=",".join(map(str, range(50))))),
            {},
            (),
            id="many say nothing about any",
        ),
        pytest.param(
            spec("test", Change(variable="replace_samples", dose="steps 3-5")), {}, (), id="steps"
        ),
        pytest.param(
            spec("placebo", Change(variable="replace_samples", dose="12")), {}, (), id="innocent"
        ),
        pytest.param(
            spec("control"),
            {"locate": {"sample_ids": [7]}, "rules": [{"samples": [8, 9]}, {"samples": []}]},
            (7, 8, 9),
            id="named by locator and rules",
        ),
        pytest.param(spec("control"), {"locate": {"sample_ids": None}}, (), id="none named"),
        pytest.param(
            spec("control"), {"locate": {"sample_ids": list(range(64))}}, (), id="the whole batch"
        ),
        pytest.param(spec("dose", Change(variable="clip_norm", dose=1)), {}, (), id="a setting"),
    ],
)
def test_a_trial_keeps_the_samples_it_is_about(trial, findings, suspects):
    wanted = looked_at(trial, USED, findings)
    assert wanted.suspects == suspects
    assert not set(wanted.suspects) & set(wanted.ordinary)
    assert len(wanted.ordinary) == 16


def test_those_the_verdict_blames_are_shown_with_two_ordinary_ones():
    kept = [view(3), view(9), view(5), *(view(i, blamed=False) for i in (9, 20, 21, 22))]
    assert [(each.sample, each.blamed) for each in chosen(kept, (9, 3))] == [
        (3, True),
        (9, True),
        (20, False),
        (21, False),
    ]


def test_a_view_with_a_mark_is_taken_before_one_without():
    (first,) = chosen([view(3), view(3, unusual="empty")], (3,))
    assert first.parts[0].unusual == "empty"


def test_where_nothing_is_blamed_what_stood_out_is_shown_as_such():
    shown = chosen([view(3, stood_out=True), view(4), view(20, blamed=False)], ())
    assert [(each.sample, each.blamed, each.stood_out) for each in shown] == [
        (3, False, True),
        (20, False, False),
    ]


def test_ordinary_samples_alone_are_nothing_to_show():
    assert chosen([view(20, blamed=False)], ()) == ()


def test_at_most_twelve_are_shown():
    assert len(chosen([view(i) for i in range(40)], range(40))) == 12


def test_a_damaged_file_of_a_trial_costs_a_bisect_nothing_but_a_picture(tmp_path):
    def directory(path, kind, parent):
        return RunDirectory.create(
            path,
            run_id=path.name,
            kind=kind,
            name=path.name,
            parent_path=parent,
            experiment="stabexp",
            tracking_uri="http://127.0.0.1:9",
        )

    bisect = directory(tmp_path / "bisect-1", "bisect", None)
    trials = [directory(bisect.path / "trials" / name, "trial", bisect.path) for name in "abc"]
    (trials[0].path / VIEWS).write_text("{", "utf-8")
    (trials[1].path / VIEWS).write_text('{"samples": [{"sample": "x"}]}', "utf-8")
    write_views(trials[2], [view(3)])
    assert views_of_trials(bisect) == (view(3),)
