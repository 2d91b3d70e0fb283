"""A precision dose is the experiment file's precision."""

from __future__ import annotations

import pytest
from interventions.training_by_keys import assert_same, train


@pytest.mark.parametrize("given", ["fp32", "fp16", "pure_fp16"])
@pytest.mark.parametrize("dose", ["fp32", "bf16", "fp16", "fp16_unscaled", "pure_bf16", "fp64"])
def test_precision_from_the_start_is_the_files_precision(given, dose):
    written_out = train(precision=dose, steps=4)
    assert_same(written_out, train(precision=given, interventions={"precision": dose}, steps=4))
