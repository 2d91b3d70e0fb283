"""Programs train, faults strike where they say, and a replay meets them at the same place."""

from __future__ import annotations

import pytest

from experiments.benchmark.draws import all_draws
from experiments.benchmark.programs import FAMILIES, family
from experiments.benchmark.quick import train_once
from experiments.benchmark.seeding import write

DRAWS = {draw.name: draw for draw in all_draws()}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_healthy_program_trains(name, tmp_path):
    draw = DRAWS[f"healthy-{name}-0"]
    trained = train_once(write(draw, tmp_path), ["steps=60"])
    assert trained.divergence is None
    assert trained.records[-1].loss < trained.records[0].loss


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_says_how_large_its_dataset_is(name):
    kind = family(name)
    task = kind()
    assert len(task.dataset()) == kind.samples
    task.model().get_submodule(kind.wide)


@pytest.mark.parametrize(
    "name", ["nan_sample-mlp-0", "first_moment-rnn-0", "length_of_blank-mlp-0"]
)
def test_a_late_fault_strikes_at_its_step_and_is_gone_when_fixed(name, tmp_path):
    draw = DRAWS[name]
    struck = train_once(write(draw, tmp_path / "a")).divergence
    assert struck is not None
    assert abs(struck.onset - draw.fault().strikes()) <= 2
    assert train_once(write(draw, tmp_path / "b", fixed=True)).divergence is None


def test_a_broken_sample_comes_up_first_at_the_step_its_label_says(tmp_path):
    draw = DRAWS["nan_sample-mlp-0"]
    records = train_once(write(draw, tmp_path)).records
    (first, *_) = draw.fault().samples()
    assert next(r.step for r in records if first in r.sample_ids) == draw.fault().strikes()


def test_the_same_draw_trains_the_same_way_twice(tmp_path):
    draw = DRAWS["healthy-rnn-0"]
    once, again = (train_once(write(draw, tmp_path / x), ["steps=30"]).records for x in "ab")
    assert [record.digest for record in once] == [record.digest for record in again]
