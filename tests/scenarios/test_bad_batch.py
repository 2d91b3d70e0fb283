"""A whole batch of broken samples, which clipping would hide, is named as data."""

from __future__ import annotations

import pytest

import stabexp
from experiments.recovery import bench

pytestmark = pytest.mark.usefixtures("no_uploader_left")


# The training counts its steps in a list that is no longer than the run, so the scan of single
# samples, which takes more, fails half-way.
@pytest.mark.slow
def test_a_batch_that_is_broken_as_a_whole_is_named_and_clipping_is_not_blamed(tmp_path, nowhere):
    result = bench.train("bad_batch", 20, tmp_path)
    verdict = stabexp.bisect(result.run_id, root=tmp_path, workers=0)
    assert verdict.cause == "data", verdict.summary
    onset = next(
        step
        for step in stabexp.load(result.run_id, root=tmp_path).records
        if step.step == result.divergence.onset
    )
    assert verdict.culprit is not None
    named = set(verdict.culprit.samples)
    assert named <= set(onset.sample_ids)
    assert len(named) > 0.8 * len(onset.sample_ids)
