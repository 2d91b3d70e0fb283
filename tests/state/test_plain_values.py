"""Any state tree comes back as it was: copied, through a file, and hashed the same."""

from __future__ import annotations

import io
from collections import Counter, OrderedDict, deque

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stabexp.state import Snapshot, capture, first_difference, state_hash
from stabexp.state.plain_values import from_plain, to_plain

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool]
DTYPES += [torch.uint8, torch.complex64, torch.int16]


@st.composite
def tensors(draw):
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    bits = draw(st.binary(min_size=27 * 8, max_size=27 * 8))
    dtype = draw(st.sampled_from(DTYPES))
    count = int(np.prod(shape))
    raw = torch.frombuffer(bytearray(bits), dtype=torch.uint8)
    flat = (raw % 2).bool()[:count] if dtype is torch.bool else raw.view(dtype)[:count]
    tensor = flat.reshape(shape).clone()
    return tensor.t().clone().t() if tensor.dim() == 2 and draw(st.booleans()) else tensor


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=5),
    st.binary(max_size=5),
    tensors(),
    st.sets(st.integers(), max_size=3),
    st.sampled_from([torch.float16, torch.device("cpu"), torch.Size([2, 3])]),
)
keys = st.one_of(st.text(max_size=4), st.integers(), st.booleans())
trees = st.recursive(
    values,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=3),
        st.dictionaries(keys, inner, max_size=3).map(OrderedDict),
    ),
    max_leaves=12,
)


def snapshot_of(tree):
    return Snapshot(objects={}, streams={}, extra={"tree": to_plain(tree, where="tree")})


@given(trees)
def test_a_tree_comes_back_through_a_copy_and_a_file(tree):
    first = snapshot_of(tree)
    copied = snapshot_of(from_plain(first.extra["tree"]))
    file = io.BytesIO()
    torch.save(first.to_payload(), file)
    file.seek(0)
    loaded = Snapshot.from_payload(torch.load(file, weights_only=True))
    for other in (copied, loaded):
        assert first_difference(first, other) is None
        assert state_hash(first) == state_hash(other)


@given(trees, trees)
def test_trees_have_equal_hashes_just_when_nothing_differs(one, other):
    a, b = snapshot_of(one), snapshot_of(other)
    assert (state_hash(a) == state_hash(b)) == (first_difference(a, b) is None)


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6, dtype=np.uint32).reshape(2, 3)[:, ::2],
        np.float32(1 / 3),
        np.float64(np.nan),
        np.array([], dtype=np.int8),
        np.bool_(True),
        np.zeros((), dtype=">f8"),
    ],
    ids=lambda value: f"{type(value).__name__}-{value.dtype}",
)
def test_numpy_values_come_back_with_their_type(value):
    back = from_plain(to_plain(value, where="value"))
    assert type(back) is type(value)
    assert back.dtype == value.dtype
    np.testing.assert_array_equal(back, value)


def test_containers_keep_their_type():
    tree = {"q": deque([1, 2], maxlen=3), "c": Counter("aab"), "o": OrderedDict(b=1, a=2)}
    back = from_plain(to_plain(tree, where="tree"))
    assert back == tree
    assert back["q"].maxlen == 3
    assert [type(item) for item in back.values()] == [deque, Counter, OrderedDict]


def test_a_conjugate_view_is_captured_with_the_values_it_shows():
    shown = torch.tensor([1 + 2j]).conj()
    assert from_plain(to_plain(shown, where="x")).tolist() == [1 - 2j]


def test_tensors_made_and_dropped_in_turn_are_not_taken_for_one_another():
    class Fresh:
        def __init__(self, value):
            self.value = value

        def state_dict(self):
            return {"x": torch.full((64,), self.value)}  # freed right after: same address next

        def load_state_dict(self, state):
            self.value = state["x"][0].item()

    snapshot = capture({str(i): Fresh(float(i)) for i in range(8)})
    assert [saved["value"]["x"][0].item() for saved in snapshot.objects.values()] == [*range(8)]
