"""The finder works in trainers that own their loop, through the same boundary."""

from __future__ import annotations

import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything of Hugging Face's is imported

import pytest

import stabexp

TRAINERS = Path(__file__).parents[2] / "experiments" / "trainers"


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    ("function", "tuning", "configured"),
    [
        pytest.param("hugging_face.py:adapters", "lora", 0.05, id="PEFT", marks=pytest.mark.slow),
        pytest.param("lightning_auto.py:train", "", 0.05, id="Lightning"),
        pytest.param("lightning_manual.py:train", "", 0.05, id="Lightning by hand"),
        pytest.param("accelerate_loop.py:train", "", 0.05, id="Accelerate"),
    ],
)
def test_a_rate_is_found_and_the_state_put_back(function, tuning, configured):
    found = stabexp.lr_find(f"{TRAINERS / function}", threads=1, ramp_steps=80, probe_steps=0)
    assert len(found.losses) == 80
    assert found.configured == pytest.approx(configured)
    assert found.rate is not None
    assert configured / 30 < found.rate < 30 * configured
    assert found.tuning == tuning
    assert len(found.state_hash) == 64
