from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stabexp.reporting.chart import Marker, line_chart
from stabexp.reporting.curve import Curve, condense, thin
from stabexp.reporting.scale import value_scale

NAN, INF = math.nan, math.inf


def chart(*curves, **options):
    drawn = [
        Curve(key=f"k{at}", label=f"{at:02d}", title="a <curve>", kind="cured", points=points)
        for at, points in enumerate(curves)
    ]
    text = line_chart(
        drawn, name="c", title="Loss & more", description="<none>", y_label="loss", **options
    )
    return text, ElementTree.fromstring(text)


def numbers_in(root):
    """Every coordinate in the picture."""
    for element in root.iter():
        for name in ("x", "y", "x1", "x2", "y1", "y2", "d", "transform"):
            yield from re.findall(r"nan|inf|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", element.get(name, ""))


def paths(root, kind):
    return [element.get("d") for element in root.iter("path") if element.get("class") == kind]


ODD = [
    pytest.param([], id="no points"),
    pytest.param([(5, 2.0)], id="one point"),
    pytest.param([(5, NAN)], id="one point that is not a number"),
    pytest.param([(step, NAN) for step in range(9)], id="only NaN"),
    pytest.param([(0, 1e-8), (1, 1.0), (2, 1e30)], id="a huge range"),
    pytest.param([(0, 1.0), (1, INF), (2, -INF), (3, 2.0)], id="both infinities"),
    pytest.param([(0, -3.0), (1, 0.0), (2, 1e9)], id="negative, zero and huge"),
    pytest.param([(0, 0.0), (1, 0.0)], id="all zero"),
    pytest.param([(0, 5e-324), (1, 1.7e308)], id="the ends of what a float holds"),
    pytest.param([(0, -1.7e308), (1, 1.7e308)], id="all that a float holds, linear"),
    pytest.param([(0, 1e-310), (1, 1e-300)], id="only denormals"),
    pytest.param([(0, 1e16), (1, 1e16 + 2)], id="a large offset"),
]


@pytest.mark.parametrize("points", ODD)
def test_draws_only_finite_coordinates_for(points):
    _, root = chart(points)
    assert not [number for number in numbers_in(root) if number in {"nan", "inf"}]


POINTS = st.lists(
    st.tuples(st.integers(0, 10**9), st.floats()) | st.tuples(st.integers(0, 50), st.floats(0, 9)),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(curves=st.lists(POINTS, max_size=4), at=st.integers(0, 10**9))
def test_draws_anything_inside_its_frame(curves, at):
    _, root = chart(*curves, markers=[Marker(step=at, label="onset", kind="onset")], width=500)
    for line in paths(root, "line"):
        for x, y in re.findall(r"[ML](\S+) ([-.\d]+)", line):
            assert 57.9 <= float(x) <= 460.1
            assert 0 <= float(y) <= 340.1
    assert not [number for number in numbers_in(root) if number in {"nan", "inf"}]


@given(
    points=st.lists(st.tuples(st.integers(), st.floats(-1e9, 1e9)), min_size=1, max_size=400),
    most=st.integers(4, 80),
)
def test_thinning_keeps_the_ends_and_the_extremes(points, most):
    kept = thin(points, most)
    values = [value for _, value in points]
    assert len(kept) <= most
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert {min(values), max(values)} <= {value for _, value in kept}


def test_a_single_spike_among_20000_points_is_drawn():
    points = [(step, 50.0 if step == 12_345 else 2.0 + step % 7 / 10) for step in range(20_000)]
    _, root = chart(points)
    (line,) = paths(root, "line")
    assert line.count("L") + line.count("M") <= 600
    heights = [float(y) for _, y in re.findall(r"[ML](\S+) ([-.\d]+)", line)]
    assert min(heights) < sorted(heights)[1] - 100


def test_a_curve_breaks_where_it_is_not_finite_and_says_so_once():
    _, root = chart([(0, 1.0), (1, 1.5), (2, NAN), (3, NAN), (4, 1.2), (5, 1.1)])
    (line,) = paths(root, "line")
    assert line.count("M") == 2
    assert len(paths(root, "cross")) == 1


def test_a_long_curve_breaks_although_the_step_that_broke_it_was_thinned_away():
    points = [(step, NAN if step == 5_001 else 1.0 + step % 5) for step in range(10_000)]
    _, root = chart(points)
    assert paths(root, "line")[0].count("M") == 2


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        pytest.param([1.0, 5.0, 90.0], "linear", id="under two decades"),
        pytest.param([1.0, 1.0, 250.0], "log", id="over two decades"),
        pytest.param([0.0, 1.0, 250.0], "symlog", id="over two decades with a zero"),
        pytest.param([-5.0, 3.0, 9.0], "linear", id="negative but narrow"),
        pytest.param([NAN, INF], "linear", id="nothing finite"),
    ],
)
def test_the_scale_is(values, kind):
    assert value_scale(values).kind == kind


def test_a_loss_lower_by_a_third_stays_a_tenth_of_the_height_however_high_another_went():
    scale = value_scale([*(2.0 + step / 50 for step in range(50)), 1e6, 1e30])
    assert scale.share(3.0) - scale.share(2.0) > 0.1
    assert scale.outside(1e30) == 1


def test_labels_at_the_ends_never_cover_each_other():
    curves = [[(0, 2.0), (100, 1.0 + at / 1000)] for at in range(9)]
    blown = [[(0, 2.0), (50 + at, 2.0), (51 + at, INF)] for at in range(9)]
    _, root = chart(*curves, *blown)
    places = [
        (float(element.get("x")), float(element.get("y")))
        for element in root.iter("text")
        if element.get("class", "").startswith("end")
    ]
    assert len(places) == 18
    for at, (x, y) in enumerate(places):
        for other_x, other_y in places[:at]:
            assert abs(y - other_y) >= 11 or abs(x - other_x) >= 12


def test_names_are_escaped_and_the_picture_is_described():
    text, root = chart([(0, 1.0)])
    assert "<curve>" not in text
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == "c-title c-desc"
    assert [element.text for element in root.iter("desc")] == ["<none>"]


def test_a_long_curve_is_condensed_to_its_ends_extremes_and_breaks():
    points = [(step, math.sin(step)) for step in range(50_000)]
    points[30_000:30_010] = [(step, NAN) for step in range(30_000, 30_010)]
    points[7] = (7, 99.0)
    found = condense(points, most=500)
    assert len(found) <= 501
    assert found[0] == points[0]
    assert found[-1] == points[-1]
    assert (7, 99.0) in found
    assert [step for step, value in found if math.isnan(value)] == [30_000]
    assert [step for step, _ in found] == sorted(step for step, _ in found)


def test_a_long_curve_that_breaks_everywhere_stays_short():
    points = [(step, NAN if step % 2 else 1.0) for step in range(20_000)]
    assert len(condense(points, most=500)) <= 1000
