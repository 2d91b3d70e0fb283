"""Hashes and digests see every bit, and nothing but the bits."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

from stabexp.state import Snapshot, capture, first_difference, parameter_digest, state_hash

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def snapshot(extra):
    return Snapshot(objects={}, streams={}, extra=extra)


def test_dict_order_and_memory_layout_make_no_difference():
    image = torch.randn(2, 3, 4, 4)
    a = snapshot({"x": image, "y": 1, "z": {"p": 1, "q": 2}})
    b = snapshot(
        {"z": {"q": 2, "p": 1}, "y": 1, "x": image.contiguous(memory_format=torch.channels_last)}
    )
    assert state_hash(a) == state_hash(b)
    assert first_difference(a, b) is None


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        ({"x": 1}, {"x": 1.0}, "extra.x: int 1 and float 1.0"),
        ({"x": 1}, {"x": True}, "extra.x: int 1 and bool True"),
        ({"x": 0.0}, {"x": -0.0}, "extra.x: float 0.0 and float -0.0"),
        ({"x": []}, {"x": {}}, r"extra.x: list \[\] and dict {}"),
        ({"x": [1, 2]}, {"x": (1, 2)}, r"extra.x: list \[1, 2\] and tuple \(1, 2\)"),
        ({"x": 1}, {"x": 1, "y": 2}, "extra.y is only in one"),
        ({"x": torch.ones(2)}, {"x": torch.ones(2, 1)}, r"extra.x: torch.float32\(2,\) and"),
        ({"x": torch.ones(2)}, {"x": torch.ones(2).int()}, "torch.float32.* and torch.int32"),
        (
            {"x": torch.tensor([0.0, 1.0, 2.0])},
            {"x": torch.tensor([-0.0, 1.0, 3.0])},
            "2 of 3 elements differ, first element 0: 0.0 and -0.0",
        ),
        ({"x": {"y": 1}}, {"x": {1: 1}}, "is only in one"),
    ],
)
def test_every_difference_changes_the_hash_and_is_named(one, other, message):
    a, b = snapshot(one), snapshot(other)
    assert state_hash(a) != state_hash(b)
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(first_difference(a, b))


def test_equal_nans_are_equal():
    a, b = (snapshot({"x": torch.tensor([float("nan")]), "y": float("nan")}) for _ in range(2))
    assert state_hash(a) == state_hash(b)
    assert first_difference(a, b) is None


def test_the_difference_between_two_trainings_is_named_by_parameter():
    model = nn.Linear(2, 2)
    before = capture({"model": model})
    with torch.no_grad():
        model.weight[1, 0] += 1
    message = first_difference(before, capture({"model": model}))
    assert message is not None
    assert message.startswith("model.state.weight: 1 of 4 elements differ, first element 2:")


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_change_of_any_bit_changes_the_digest(dtype):
    torch.manual_seed(0)
    tensors = [
        torch.randn(5, dtype=dtype),
        torch.randn((), dtype=dtype),
        torch.randn(3, dtype=dtype),
    ]
    seen = {int(parameter_digest(tensors))}
    flips = 0
    for tensor in tensors:
        raw = tensor.reshape(-1).view(torch.uint8)
        for index in range(raw.numel()):
            for bit in range(8):
                raw[index] ^= 1 << bit
                seen.add(int(parameter_digest(tensors)))
                raw[index] ^= 1 << bit
                flips += 1
    assert len(seen) == flips + 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_swapped_parameters_and_elements_change_the_digest(dtype):
    torch.manual_seed(0)
    a, b = torch.randn(4, 4, dtype=dtype), torch.randn(4, 4, dtype=dtype)
    digests = [[a, b], [b, a], [a.flip(0), b], [a.t(), b], [a, b.roll(4)], [a + 1, b - 1]]
    assert len({int(parameter_digest(tensors)) for tensors in digests}) == len(digests)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "change", [torch.neg, lambda t: t * 2, lambda t: t.flip(0), torch.zeros_like]
)
def test_a_change_of_many_elements_at_once_does_not_cancel(dtype, change):
    torch.manual_seed(0)
    for size in (2, 4, 8, 64, 256, 80_000):
        tensor = torch.randn(size, dtype=dtype)
        assert parameter_digest([tensor]) != parameter_digest([change(tensor)])


def test_layout_views_and_empty_tensors_make_no_difference():
    torch.manual_seed(0)
    odd = torch.randn(1 + 24)[1:]  # starts at an address that is not a multiple of 8 bytes
    image = odd.reshape(1, 2, 3, 4)
    expected = parameter_digest([image.clone()])
    assert expected.dtype == torch.int64
    assert expected.dim() == 0
    for tensors in (
        [image],
        [image.contiguous(memory_format=torch.channels_last)],
        [torch.empty(0), image, torch.empty(0, 3)],
        [nn.Parameter(image)],
        [odd[:12], odd[12:]],
    ):
        assert parameter_digest(tensors) == expected
    assert parameter_digest([]) == 0
    assert parameter_digest([torch.empty(0)]) == 0


def test_large_tensors_are_digested_in_pieces_that_see_everything():
    torch.manual_seed(0)
    large = torch.zeros((1 << 22) + 5)  # two 8 MiB pieces and 20 bytes
    rest = torch.ones(7)
    seen = {int(parameter_digest([large, rest]))}
    for index in (0, (1 << 21) - 1, 1 << 21, (1 << 22) - 1, 1 << 22, (1 << 22) + 4):
        large[index] = 1
        seen.add(int(parameter_digest([large, rest])))
        large[index] = 0
    assert len(seen) == 7


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_changes_to_two_elements_of_a_large_tensor_do_not_cancel(dtype):
    torch.manual_seed(0)
    tensor = torch.randn(100_000, dtype=dtype)
    seen = {int(parameter_digest([tensor]))}
    pairs = [(0, step) for step in (1, 2, 62, 63, 126, 793, 1586, 1587, 3174, 50_000)]
    pairs += torch.randint(0, 100_000, (40, 2)).tolist()
    for one, other in pairs:
        for changed in (tensor[[other, one]], -tensor[[one, other]]):
            different = tensor.clone()
            different[[one, other]] = changed
            seen.add(int(parameter_digest([different])))
    assert len(seen) == 2 * len(pairs) + 1


def test_the_digest_neither_draws_numbers_nor_changes_anything():
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    tensor = torch.ones(3, requires_grad=True)
    assert not parameter_digest([tensor]).requires_grad
    assert torch.equal(torch.rand(3), expected)


def test_the_digest_of_a_million_parameters_takes_about_a_third_of_a_millisecond():
    tensors = [torch.randn(20_000) for _ in range(50)]
    times = []
    for _ in range(30):
        start = time.perf_counter()
        parameter_digest(tensors)
        times.append(time.perf_counter() - start)
    assert min(times) < 2e-3  # 0.35 ms measured; the margin is for busy machines


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_digest_is_the_same_on_a_gpu_and_stays_there():
    torch.manual_seed(0)
    tensors = [torch.randn(1000, dtype=dtype) for dtype in DTYPES]
    on_gpu = parameter_digest([tensor.cuda() for tensor in tensors])
    assert on_gpu.is_cuda
    assert on_gpu.cpu() == parameter_digest(tensors)
