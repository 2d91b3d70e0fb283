"""A batch dose is the experiment file's batch size, multiplied."""

from __future__ import annotations

import pytest
from interventions.training_by_keys import MLP, assert_same, train


@pytest.mark.parametrize("accumulate", [1, 2])
def test_four_times_the_batch_is_four_times_the_size(accumulate):
    written_out = train(task=MLP, batch={"size": 32, "accumulate": accumulate})
    changed = train(
        task=MLP,
        batch={"size": 8, "accumulate": accumulate},
        interventions={"batch_size": 4},
    )
    assert_same(written_out, changed)
    assert [r.sample_ids for r in changed[0]] == [r.sample_ids for r in written_out[0]]
