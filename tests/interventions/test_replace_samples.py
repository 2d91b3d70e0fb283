"""Replaced samples never come up, and everything else stays where it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from interventions.training_by_keys import MLP, assert_different, assert_same, train

from stabexp.errors import NotReplayableError
from stabexp.training.data import SampleOrder


@given(
    size=st.integers(2, 60),
    chosen=st.sets(st.integers(0, 59), max_size=20),
    position=st.integers(0, 200),
    count=st.integers(1, 100),
)
def test_the_others_keep_their_places(size, chosen, position, count):
    replaced = frozenset(i for i in chosen if i < size)
    if len(replaced) == size:
        return
    before = SampleOrder(size, seed=3).ids(position, count)
    after = SampleOrder(size, seed=3, replaced=replaced).ids(position, count)
    assert not replaced & set(after)
    for old, new in zip(before, after, strict=True):
        assert new == old or old in replaced


def test_a_dataset_cannot_be_replaced_whole():
    with pytest.raises(NotReplayableError, match="leave some"):
        SampleOrder(3, seed=0, replaced=frozenset(range(3)))


def test_a_sample_that_never_comes_up_changes_nothing():
    settings = {"task": MLP, "steps": 4}
    control = train(**settings)
    seen = {i for record in control[0] for i in record.sample_ids}
    unseen = next(i for i in range(1797) if i not in seen)
    assert_same(control, train(**settings, interventions={"replace_samples": str(unseen)}))


def test_without_its_samples_a_step_is_another():
    settings = {"task": MLP, "steps": 4}
    control = train(**settings)
    second = ",".join(str(i) for i in control[0][1].sample_ids)
    changed = train(**settings, interventions={"replace_samples": second})
    assert changed[0][0].digest == control[0][0].digest
    assert_different(control, changed)
    assert not set(control[0][1].sample_ids) & {i for r in changed[0] for i in r.sample_ids}
