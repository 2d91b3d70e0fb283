"""The first difference of two replays is found, named, and readable."""

from __future__ import annotations

import pytest

from stabexp.bisection.tensor_difference import first_difference, shared_steps

STEP = [
    [0, "input", "0", "float32(8, 4)", "aa"],
    [0, "forward", "0.fc", "float32(8, 8)", "bb"],
    [0, "loss", "loss", "float32()", "cc"],
    [0, "backward", "0.fc.weight", "float32(8, 4)", "dd"],
]


def changed(index, *, form=None, digest=None):
    step = [list(entry) for entry in STEP]
    step[index][3] = form or step[index][3]
    step[index][4] = digest or step[index][4]
    return step


@pytest.mark.parametrize(
    ("second", "says"),
    [
        pytest.param(
            changed(1, digest="xx"),
            "step 7, the output of 0.fc: other bits (float32(8, 8))",
            id="bits",
        ),
        pytest.param(
            changed(1, form="float16(8, 8)", digest="xx"),
            "step 7, the output of 0.fc: float32(8, 8) in one, float16(8, 8) in the other",
            id="another dtype",
        ),
        pytest.param(
            [*STEP[:1], *STEP[2:]],
            "step 7, the output of 0.fc: only in the first at this point",
            id="left out",
        ),
        pytest.param(
            STEP[:3],
            "step 7, the gradient of 0.fc.weight: only in the first at this point",
            id="end",
        ),
        pytest.param(
            [*STEP[:2], [0, "forward", "1.fc", "float32(8, 1)", "ee"], *STEP[2:]],
            "step 7, the output of 1.fc: only in the second at this point",
            id="put in",
        ),
        pytest.param(
            [[0, "input", "mask", "bool(8,)", "ff"], *STEP],
            "step 7, the batch, mask: only in the second at this point",
            id="put in at the start",
        ),
    ],
)
def test_what_differs_first_is_named(second, says):
    assert str(first_difference({"6": STEP, "7": STEP}, {"6": STEP, "7": second})) == says


def test_the_earliest_step_counts_as_a_number():
    a = {"2": STEP, "10": STEP}
    b = {"2": changed(3, digest="xx"), "10": changed(0, digest="xx")}
    found = first_difference(a, b)
    assert found is not None
    assert (found.step, found.phase) == (2, "backward")


def test_a_later_micro_batch_is_named():
    second = [[1, *entry[1:]] for entry in STEP]
    other = [[1, *entry[1:]] for entry in changed(2, digest="xx")]
    found = first_difference({"0": STEP + second}, {"0": STEP + other})
    assert str(found) == "step 0, micro-batch 1, the loss: other bits (float32())"


def test_only_common_steps_are_compared():
    a, b = {"1": STEP, "2": STEP}, {"2": STEP, "3": changed(0, digest="xx")}
    assert first_difference(a, b) is None
    assert shared_steps(a, b) == (2,)
