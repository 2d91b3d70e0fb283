"""The failing trainings of `experiments/stabilisers.py`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

_PLACE = Path(__file__).parents[2] / "experiments" / "stabilisers.py"


@pytest.fixture(scope="session")
def cases():
    """Return the cases by (training, stabiliser)."""
    # Loaded by path: experiments are scripts, not part of the package.
    spec = importlib.util.spec_from_file_location("experiments_stabilisers", _PLACE)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CASES


@pytest.fixture
def saves(cases):
    """Say whether every training that a stabiliser should save fails without and not with it."""

    def check(name, **given):
        own = [
            case
            for case in cases
            if case.stabiliser == name and given.items() <= dict(case.args).items()
        ]
        assert own
        for case in own:
            assert not case.run(0, stabilised=False)[0]
            assert case.run(0, stabilised=True)[0], (case.train.__name__, dict(case.args))

    return check
