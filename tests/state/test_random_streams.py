"""Random streams continue where they stood."""

from __future__ import annotations

import io
import random

import numpy as np
import pytest
import torch

from stabexp.state import capture_streams, isolated_streams, restore_streams, seed_everything
from stabexp.state.random_streams import set_stream_state, stream_state


def draw():
    # gauss and standard_normal keep a second number for the next call: it is state too.
    return (
        random.random(),
        random.gauss(0, 1),
        np.random.standard_normal(3).tolist(),
        np.random.random(),
        torch.rand(3).tolist(),
        torch.randn(3).tolist(),
        torch.randperm(5).tolist(),
    )


def test_every_stream_continues_also_through_a_file():
    seed_everything(3)
    draw()
    streams = capture_streams()
    expected = [draw(), draw()]
    file = io.BytesIO()
    torch.save(streams, file)
    file.seek(0)
    for state in (streams, torch.load(file, weights_only=True), streams):
        seed_everything(99)
        restore_streams(state)
        assert [draw(), draw()] == expected


def test_equal_seeds_give_equal_streams_and_others_do_not():
    draws = []
    for seed in (1, 1, 2, 2**40):
        seed_everything(seed)
        draws.append(draw())
    assert draws[0] == draws[1]
    assert draws[0] != draws[2] != draws[3]


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_out_of_range_is_refused(seed):
    with pytest.raises(ValueError, match=f"seed: {seed} is out of range"):
        seed_everything(seed)


def test_what_runs_isolated_leaves_the_streams_alone_even_when_it_raises():
    seed_everything(5)
    expected = draw()
    seed_everything(5)
    with isolated_streams():
        seed_everything(1)
        draw()
    assert draw() == expected
    seed_everything(5)
    with pytest.raises(ValueError, match="out of range"), isolated_streams():
        seed_everything(draw() and -1)
    assert draw() == expected


@pytest.mark.parametrize(
    ("make", "number"),
    [
        (lambda: torch.Generator().manual_seed(1), lambda s: torch.rand((), generator=s).item()),
        (lambda: np.random.default_rng(1), lambda s: s.random()),
        (lambda: np.random.Generator(np.random.MT19937(1)), lambda s: s.random()),
        (lambda: np.random.RandomState(1), lambda s: s.standard_normal()),
        (lambda: random.Random(1), lambda s: s.gauss(0, 1)),
    ],
    ids=["torch", "numpy pcg64", "numpy mt19937", "numpy legacy", "python"],
)
def test_a_stream_of_ones_own_continues(make, number):
    stream = make()
    number(stream)
    state = stream_state(stream)
    expected = [number(stream) for _ in range(3)]
    for fork in (stream, make()):
        set_stream_state(fork, state)
        assert [number(fork) for _ in range(3)] == expected
