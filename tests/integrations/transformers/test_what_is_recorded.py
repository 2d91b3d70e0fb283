"""What Trainer filters, divides or clips is recorded as it was."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from integrations.transformers.lines import Counting, Line, Noisy, line
from torch.nn import functional as F
from transformers import Trainer

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


class Bad(Noisy):
    """Points of which one has no label."""

    def __getitem__(self, index):
        found = super().__getitem__(index)
        return found | {"labels": found["labels"] * math.nan} if index == 17 else found


def test_a_loss_that_trainer_filters_out_is_recorded_and_ends_the_run(record):
    kept = []
    run = record(lambda run: kept.append(line(run, data=Bad(), max_steps=40, logging_steps=1)))
    bad = [r for r in run.records if 17 in r.sample_ids]
    assert math.isnan(bad[0].loss)
    assert math.isnan(bad[0].grad_norm)
    assert run.divergence is not None
    assert run.divergence.detector == "non_finite"
    assert run.divergence.onset == bad[0].step
    (trainer,) = kept
    assert trainer.args.logging_nan_inf_filter
    assert all(math.isfinite(log.get("loss", 0.0)) for log in trainer.state.log_history)
    assert len(run.records) < 40
    assert trainer.state.global_step == len(run.records)


def test_the_norm_before_clipping_is_recorded_beside_what_clipping_did(record):
    clipped = record(partial(line, max_grad_norm=0.01, max_steps=3))
    assert all(r.grad_norm > 0.1 for r in clipped.records)
    for r in clipped.records:
        assert r.clip_coefficient == pytest.approx(0.01 / r.grad_norm, rel=1e-4)


def test_a_limit_of_zero_clips_nothing(record):
    free = record(partial(line, max_grad_norm=0.0, max_steps=3))
    assert {r.clip_coefficient for r in free.records} == {1.0}


class Own(Trainer):
    """Computes its loss, and works on a batch, in its own way."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        loss = F.l1_loss(outputs["logits"], inputs["labels"])
        return (loss, outputs) if return_outputs else loss


class Handmade(Trainer):
    """Never calls compute_loss."""

    def training_step(self, model, inputs, num_items_in_batch=None):
        model.train()
        loss = model(**inputs)["loss"] / self.current_gradient_accumulation_steps
        self.accelerator.backward(loss)
        return loss.detach()


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        pytest.param(Trainer, Line, id="divided by Trainer"),
        pytest.param(Trainer, Counting, id="divided by the model"),
        pytest.param(Own, Line, id="own compute_loss"),
        pytest.param(Handmade, Line, id="own training_step"),
    ],
)
@pytest.mark.parametrize("parts", [1, 3])
def test_the_loss_is_that_of_the_update_whoever_divides_it(record, kind, model, parts):
    kept = []

    def train(run):
        kept.append(
            line(
                run,
                kind=kind,
                model=model,
                max_steps=6,
                logging_steps=1,
                gradient_accumulation_steps=parts,
                eval_strategy="steps",
                eval_steps=2,
            )
        )

    run = record(train)
    logged = [log["loss"] for log in kept[0].state.log_history if "loss" in log]
    assert [r.loss for r in run.records] == pytest.approx(logged, 1e-6)


def test_samples_are_named_and_counted(record):
    run = record(partial(line, max_steps=14))
    one_pass = [i for r in run.records[:7] for i in r.sample_ids]
    assert sorted(one_pass) == list(range(50))
    assert [r.position for r in run.records[:3]] == [0, 8, 16]
    assert run.records[7].position == 50


def test_a_trainer_keeps_its_class(record):
    kept = []
    record(lambda run: kept.append(line(run, kind=Own, max_steps=2)))
    assert isinstance(kept[0], Own)
    assert type(kept[0]).__name__ == "Own"
    assert torch.isfinite(kept[0].model.linear.weight).all()
