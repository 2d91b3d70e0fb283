"""Every seeded fault is located: operation, phase, line, module and reason."""

from __future__ import annotations

import pytest
from instruments.backward_faults import BACKWARD
from instruments.forward_faults import FORWARD
from instruments.locate_harness import train
from instruments.update_faults import UPDATE

FAULTS = [*FORWARD.faults, *BACKWARD.faults, *UPDATE.faults]


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_locates(fault):
    found = train(fault.step, fault.model())
    assert found is not None
    expected = dict(fault.expected)
    if fault.source:
        expected.setdefault("source", fault.source)
    assert {key: found[key] for key in expected} == expected
    assert not found["harmless"]
