"""A clip dose is the experiment file's clip."""

from __future__ import annotations

import pytest
from interventions.training_by_keys import assert_same, train


def test_a_clip_above_every_norm_changes_nothing():
    control = train()
    clipped = train(interventions={"clip_norm": 1e6})
    assert_same(control, clipped)
    assert all(record.clip_coefficient == 1.0 for record in clipped[0])


@pytest.mark.parametrize("precision", ["fp32", "fp16", "fp64"])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_clip_is_the_files_clip_bit_for_bit(precision, accumulate):
    settings = {"precision": precision, "batch": {"size": 8, "accumulate": accumulate}}
    written_out = train(**settings, clip=0.3)
    assert_same(written_out, train(**settings, interventions={"clip_norm": 0.3}))
    assert any(record.clip_coefficient < 0.9 for record in written_out[0])


@pytest.mark.parametrize(("dose", "effective"), [(0.2, 0.2), (5.0, 0.4)])
def test_of_two_clips_the_tighter_one_holds(dose, effective):
    changed = train(clip=0.4, interventions={"clip_norm": dose})
    assert_same(train(clip=effective), changed)
