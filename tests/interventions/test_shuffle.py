"""Another order is the same samples."""

from __future__ import annotations

from interventions.training_by_keys import MLP, assert_different, train


def test_another_order_shows_the_same_samples():
    settings = {"task": MLP, "batch": {"size": 599}, "steps": 3}
    control, changed = train(**settings), train(**settings, interventions={"shuffle": 1})
    assert_different(control, changed)
    ids = [sorted(i for r in records for i in r.sample_ids) for records in (control[0], changed[0])]
    assert ids[0] == ids[1] == list(range(1797))
