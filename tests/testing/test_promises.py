"""The checks for plug-ins: every built-in one passes, and a broken promise is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from interventions.test_contract import DOSES

from stabexp.detectors import DETECTORS
from stabexp.testing import (
    check_detector,
    check_intervention,
    check_monitor,
    check_stabiliser,
)

HEAD = """
import os

import torch
from pydantic import Field, PrivateAttr

from stabexp.detectors import Detector, Finding
from stabexp.interventions import Intervention
from stabexp.monitors import Monitor
from stabexp.stabilisers import Stabiliser

"""
MONITORS = ["layers", "activations", "resources"]
INTERVENTIONS = ["learning_rate", "clip_norm", "skip_updates", "shuffle"]
STABILISERS = {
    "adaptive_clip": {"warmup": 2, "deviations": 0.1},
    "freeze": {"modules": ["encoder"]},
    "loss_scaling": {"initial": 2.0**20, "growth_window": 2},
}


def written(code):
    Path("own.py").write_text(HEAD + code, "utf-8")


@pytest.mark.parametrize("name", DETECTORS)
def test_a_built_in_detector_passes(name):
    check_detector(name)


@pytest.mark.parametrize("name", MONITORS)
def test_a_built_in_monitor_passes(name):
    check_monitor(name, {"every": 1})


@pytest.mark.parametrize("name", INTERVENTIONS)
def test_a_built_in_intervention_passes(name):
    check_intervention(name, DOSES[name])


@pytest.mark.parametrize("name", STABILISERS)
def test_a_built_in_stabiliser_passes(name):
    check_stabiliser(name, STABILISERS[name])


DETECTOR = '''
class Own(Detector):
    """Finds."""

    {more}

    @property
    def history(self):
        return 5

    def check(self, records):
        {check}
'''
FINDING = 'Finding(value=1.0, limit=0.0, message="found")'


@pytest.mark.parametrize(
    ("more", "check", "message"),
    [
        pytest.param("", f"return {FINDING}", "fired on a healthy run", id="always"),
        pytest.param(
            "", f"return {FINDING} if records[0].step < 1 < len(records) - 6 else None",
            "looks further back than its history of 5", id="far back",
        ),
        pytest.param(
            "_asked: int = PrivateAttr(0)",
            f"self._asked += 1; return {FINDING} if self._asked == 400 else None",
            "answered differently when asked again", id="remembers",
        ),
        pytest.param("level: float = 1.0", "return None", "write what level means", id="no text"),
    ],
)  # fmt: skip
def test_a_detector_is_refused_that(more, check, message):
    written(DETECTOR.format(more=more, check=check))
    with pytest.raises(AssertionError, match=message):
        check_detector("own.py:Own")


MONITOR = '''
class Own(Monitor):
    """Measures."""

    def before_update(self, parameters, gradient_norms):
        {body}
'''


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(
            'return {"own/x": torch.tensor(gradient_norms.max().item())}',
            "waits for the device", id="waits",
        ),
        pytest.param('return {"own/x": gradient_norms}', "expected a tensor of shape", id="shape"),
        pytest.param(
            'torch.rand(1); return {"own/x": gradient_norms.max()}', "changes the training",
            id="draws a random number",
        ),
    ],
)  # fmt: skip
def test_a_monitor_is_refused_that(body, message):
    written(MONITOR.replace("{body}", body))
    with pytest.raises(AssertionError, match=message):
        check_monitor("own.py:Own")


def test_a_monitor_is_refused_that_leaves_a_hook():
    written(
        MONITOR.replace("{body}", "return {}")
        + "\n    def attach(self, model, optimizers=()):\n"
        + "        model.head.register_forward_hook(lambda *words: None)\n"
    )
    with pytest.raises(AssertionError, match="hooks are left in head"):
        check_monitor("own.py:Own")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param("pass", "it changes nothing", id="changes nothing"),
        pytest.param(
            "def gradient_scale(self):\n        return int.from_bytes(os.urandom(2)) / 65536",
            "two replays with the same dose differ", id="another each time",
        ),
        pytest.param('other: int = 1\n    """Other."""', "it has one, called dose", id="more"),
    ],
)  # fmt: skip
def test_an_intervention_is_refused_that(body, message):
    dose = '    dose: int = Field(1, ge=1)\n    """Dose."""\n\n'
    written(f'class Own(Intervention):\n    """Changes."""\n\n{dose}    {body}\n')
    with pytest.raises(AssertionError, match=message):
        check_intervention("own.py:Own", 2)


STABILISER = '''
class Own(Stabiliser):
    """Lowers the rate from step to step."""

    _steps: int = PrivateAttr(0)

    def after_step(self, record, history):
        self._steps += 1

    def lr_scale(self, step):
        return 0.9 ** self._steps
'''
STATE = """
    def state_dict(self):
        return {"steps": self._steps}

    def load_state_dict(self, state):
        self._steps = state["steps"]
"""


def test_a_stabiliser_is_refused_that_forgets():
    written(STABILISER)
    with pytest.raises(AssertionError, match="a replay from step 1 differs"):
        check_stabiliser("own.py:Own")


def test_a_stabiliser_passes_that_remembers():
    written(STABILISER + STATE)
    check_stabiliser("own.py:Own")


def test_a_stabiliser_is_refused_that_tells_nothing_in_an_event():
    written(STABILISER + STATE + "\n    def drain_events(self):\n        return [{'x': 1}]\n")
    with pytest.raises(AssertionError, match="an event without a message"):
        check_stabiliser("own.py:Own")
