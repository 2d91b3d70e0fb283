"""Inside other people's trainers several stabilisers act together, and replays stay exact."""

from __future__ import annotations

import importlib.util
import os
import sys
from functools import partial
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything of Hugging Face's is imported

import pytest
from integrations.lightning.worlds import THIRD_PARTY, Net, loader, trainer
from recording import record

from stabexp.bisection.replay import first_mismatch
from stabexp.integrations.lightning import StabexpCallback

pytestmark = [
    *([THIRD_PARTY] if not isinstance(THIRD_PARTY, list) else THIRD_PARTY),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning"),
]

TOGETHER = {
    "adaptive_clip": {"kind": "quantile"},
    "layer_clip": {},
    "skip_nonfinite": {},
    "safe_cross_entropy": {},
    "loss_clamp": {"limit": 2.0},
    "keep_fp32": {},
    "gradual_unfreezing": {"complete": 0.8},
}


def lightning(run):
    trainer(StabexpCallback(run), precision="bf16-mixed").fit(Net(), loader())


def hugging_face():
    place = Path(__file__).parents[2] / "experiments" / "trainers" / "hugging_face.py"
    spec = importlib.util.spec_from_file_location("hugging_face", place)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return partial(
        module.FUNCTIONS["trainer"], per_device_train_batch_size=80, max_steps=12, bf16=True
    )


@pytest.mark.parametrize(
    "kind", ["lightning", pytest.param("hugging_face", marks=pytest.mark.slow)]
)
def test_a_replay_with_all_of_them_is_the_run(tmp_path, kind):
    train = lightning if kind == "lightning" else hugging_face()
    more = {"activation_checkpointing": {}} if kind == "hugging_face" else {}
    made = record(train, tmp_path, stabilisers={**TOGETHER, **more})
    last = made.records[-1].metrics
    assert last["adaptive_clip/clipped"] > 0
    assert made.records[0].metrics["gradual_unfreezing/layers"] == 1
    assert last["gradual_unfreezing/layers"] > 1
    for step in (1, len(made.records) // 2):
        assert first_mismatch(made.records, made.replay(step)) == (None, "")
