"""A scan shows each sample in a batch of its own and asks for no update."""

from __future__ import annotations

import pytest

from stabexp.errors import ConfigError
from stabexp.interventions import build


@pytest.mark.parametrize(
    ("dose", "batches"),
    [
        pytest.param("3", ((3,),), id="one sample"),
        pytest.param("3,17", ((3,), (17,)), id="each alone"),
        pytest.param("3+5,17+5", ((3, 5), (17, 5)), id="with a partner for batch statistics"),
    ],
)
def test_batches_are_what_the_dose_names(dose, batches):
    (scan,) = build({"frozen_scan": dose})
    assert scan.batches() == batches
    assert scan.freezes()


@pytest.mark.parametrize("dose", ["", "3-5", "3,,5", "+3"])
def test_anything_else_is_refused_with_an_example(dose):
    with pytest.raises(ConfigError, match=r"frozen_scan.*expected batches of sample ids"):
        build({"frozen_scan": dose})
