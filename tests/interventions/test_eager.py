"""Eager is compiled code run as it was written, so a fault of the compiler goes away."""

from __future__ import annotations

import pytest
import torch
from interventions.hand_written import Net, assert_same_bits, course, parts


def wrong_by_half(module, inputs):
    """A compiler with a fault: every result is half too large."""

    def run(*args):
        return tuple(result * 1.5 for result in module.forward(*args))

    return run


def compiled(optimizer, *, tensor_rate=False):
    torch.manual_seed(3)
    model = Net()
    made = parts(optimizer, model=model)
    model.forward = torch.compile(model.forward, backend=wrong_by_half)
    return made


def outcome(make, given=None):
    """The weights alone: the loop is the same, compiled or not."""
    return course("sgd", make=make, interventions=given, steps=3)


@pytest.mark.parametrize("given", [{"eager": "on"}, {"exact_modules": "head"}])
def test_compiled_code_runs_as_written_and_again_compiled_afterwards(given):
    written_out = outcome(parts)
    assert_same_bits(written_out, outcome(compiled, given))
    wrong = outcome(compiled)
    assert not torch.equal(wrong[-1]["head.bias"], written_out[-1]["head.bias"])


def test_code_that_is_not_compiled_is_the_control():
    assert_same_bits(course("adam"), course("adam", interventions={"eager": "on"}))
