"""What a plug-in of your own must keep, as checks that your tests call.

A replay is only worth something if it is exact, and a plug-in takes part in every replay. So each
kind has its promises, and the built-in ones are held to the same checks:

    from stabexp.testing import check_detector

    def test_my_detector():
        check_detector("watch.py:Watch", {"limit": 3.0})

A promise that is broken raises an AssertionError that says which and how.
"""

from __future__ import annotations

from stabexp.testing.detectors import check_detector
from stabexp.testing.interventions import check_intervention
from stabexp.testing.monitors import check_monitor
from stabexp.testing.stabilisers import check_stabiliser

__all__ = ["check_detector", "check_intervention", "check_monitor", "check_stabiliser"]
