"""A healthy Hugging Face training is the same to the last bit with StabexpCallback and without."""

from __future__ import annotations

import pytest

from stabexp.state import seed_everything
from stabexp.state.hashing import parameter_digest
from stabexp.training import prepare

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

GIVEN = {"per_device_train_batch_size": 80, "max_steps": 16, "logging_steps": 1}


def seen_of(trainer):
    """Return the parameters' digest, and whatever Trainer logged but durations."""
    logs = [
        {
            name: value
            for name, value in log.items()
            if "runtime" not in name and "per_s" not in name
        }
        for log in trainer.state.log_history
    ]
    return int(parameter_digest(list(trainer.model.parameters()))), logs


@pytest.mark.parametrize(
    ("name", "others"),
    [
        pytest.param("trainer", {}, id="Trainer"),
        pytest.param("trainer", {"bf16": True, "num_train_epochs": 2, "max_steps": -1}, id="bf16"),
        pytest.param("adapters", {}, id="PEFT"),
        pytest.param("sft", {}, id="TRL", marks=pytest.mark.slow),
    ],
)
def test_losses_norms_and_final_weights_are_those_of_the_bare_training(
    training, record, name, others
):
    made = []
    train = training(name, **{**GIVEN, **others})
    run = record(lambda run: made.append(train(run)))
    prepare(run.settings)
    seed_everything(run.settings.seed)
    made.append(train(None))
    watched, bare = map(seen_of, made)
    assert watched == bare
    # Trainer adds up floats, we doubles: equal to the last digits that it has.
    logged = [log for log in watched[1] if "loss" in log]
    assert len(logged) == len(run.records)
    assert [r.loss for r in run.records] == pytest.approx([log["loss"] for log in logged], 1e-6)
    assert [r.grad_norm for r in run.records] == pytest.approx(
        [log["grad_norm"] for log in logged], 1e-5
    )
    assert [r.lr for r in run.records] == [log["learning_rate"] for log in logged]
