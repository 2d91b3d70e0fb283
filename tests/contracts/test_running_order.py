"""Files with slow tests begin early, so that no process waits long for the last one."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from running_order import spread


@dataclass(frozen=True)
class Item:
    """What the order asks of a test."""

    path: str
    number: int
    slow: bool = False

    def get_closest_marker(self, name):
        return self.slow if name == "slow" else None


def file(path, *, tests, slow=()):
    return [Item(path, number, number in slow) for number in range(tests)]


QUICK = [item for name in "abcdefghij" for item in file(name, tests=10)]
SLOW = [*file("y", tests=4, slow={3}), *file("z", tests=2, slow={0, 1})]


@pytest.mark.parametrize(
    ("items", "order"),
    [
        pytest.param([*QUICK, *SLOW], "yabczdefghij", id="slow ones last"),
        pytest.param([*SLOW, *QUICK], "yabczdefghij", id="slow ones first"),
        pytest.param(QUICK, "abcdefghij", id="none is slow"),
        pytest.param(SLOW, "yz", id="all are slow"),
        pytest.param([], "", id="no tests"),
    ],
)
def test_files_stay_whole_and_slow_ones_are_spread_over_the_first_part(items, order):
    ordered = spread(items)
    assert sorted(map(repr, ordered)) == sorted(map(repr, items))
    pieces = [item.path for item in ordered if item.number == 0]
    assert "".join(pieces) == order
    for path in order:
        numbers = [item.number for item in ordered if item.path == path]
        places = [place for place, item in enumerate(ordered) if item.path == path]
        assert numbers == list(range(len(numbers)))
        assert places == list(range(places[0], places[0] + len(places)))
