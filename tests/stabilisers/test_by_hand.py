"""A stabiliser in a loop that is not ours is the same loop with that written into it by hand."""

from __future__ import annotations

import copy
import statistics

import pytest
import torch
from interventions.foreign_loops import Hand, same
from stabilisers.stabilised import STEPS, by_hand, foreign, state_of
from torch import nn

pytestmark = pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")

WARMUP, DEVIATIONS = 3, 0.1


class Clipping(Hand):
    """Clips to a limit that follows the norms, for each set of parameters by itself."""

    def clipping(self, parameters, own, step):
        parameters = list(parameters)
        gradients = [p.grad for p in parameters if p.grad is not None]
        total = nn.utils.get_total_norm(gradients)
        limit = self.limit_after(self.__dict__.setdefault(str(id(parameters[0])), []), total.item())
        if limit is not None:
            nn.utils.clip_grad_norm_(parameters, limit)


class MovingMean(Clipping):
    def limit_after(self, norms, norm):
        if len(norms) < WARMUP:
            norms.append(norm)
            return None
        usual = [min(norm, 4 * statistics.median_low(norms)) for norm in norms]
        limit = statistics.fmean(usual) + DEVIATIONS * statistics.stdev(usual)
        norms.append(min(norm, limit))
        return limit


class AutoClip(Clipping):
    def limit_after(self, norms, norm):
        limit = None
        if len(norms) >= WARMUP:
            limit = torch.tensor(norms, dtype=torch.float64).quantile(0.3).item()
        norms.append(norm)
        return limit


class ZClip(Clipping):
    """As in the authors' code, with the warmup's mean and variance."""

    def limit_after(self, state, norm):
        state += [] if state else [[], 0.0, 0.0]
        seen, mean, variance = state
        limit = None
        if len(seen) < 2:
            seen.append(norm)
            mean, variance = statistics.fmean(seen), statistics.pvariance(seen)
        else:
            deviation = variance**0.5
            z = (norm - mean) / (deviation + 1e-6)
            if z > DEVIATIONS:
                limit = norm = mean + DEVIATIONS**2 / z * deviation
            mean = 0.1 * mean + 0.9 * norm
            variance = 0.1 * variance + 0.9 * (norm - mean) ** 2
        state[1:] = [mean, variance]
        return limit


class EachParameter(Hand):
    """The document's sketch: a limit for each parameter by its name."""

    def begins(self, model, step):
        super().begins(model, step)
        self.head = list(map(id, model.head.parameters()))

    def update(self, optimizer, step, call):
        call()

    def clipping(self, parameters, own, step):
        for p in parameters:
            if p.grad is not None:
                nn.utils.clip_grad_norm_([p], 0.1 if id(p) in self.head else 0.05)


class Temperature(Hand):
    def begins(self, model, step):
        super().begins(model, step)
        if not isinstance(model.head, Cooled):
            model.head.__class__ = Cooled


class Cooled(nn.Linear):
    def forward(self, x):
        return super().forward(x) / 1.25


class SoftClamp(Hand):
    def loss(self, loss, step):
        value = loss.item()
        return loss * (1.2 / loss.detach()) if value > 1.2 else loss


class Frozen(Hand):
    def begins(self, model, step):
        super().begins(model, step)
        model.encoder[0].requires_grad_(False)


class TopFirst(Hand):
    """Of 8 steps one trains the top alone; then the encoder's layers come, from above."""

    def begins(self, model, step):
        super().begins(model, step)
        model.encoder[3].requires_grad_(step >= 1)
        model.encoder[0].requires_grad_(step >= 3)


CASES = {
    "adaptive_clip": ({"warmup": WARMUP, "deviations": DEVIATIONS}, MovingMean()),
    "adaptive_clip/quantile": ({"kind": "quantile", "warmup": 3, "quantile": 0.3}, AutoClip()),
    "adaptive_clip/z_score": (
        {"kind": "z_score", "warmup": 2, "deviations": DEVIATIONS, "memory": 0.1},
        ZClip(),
    ),
    "layer_clip": ({"limits": {"head": 0.1}, "other": 0.05, "by": "parameter"}, EachParameter()),
    "logit_temperature": ({"temperature": 1.25}, Temperature()),
    "loss_clamp": ({"limit": 1.2}, SoftClamp()),
    "loss_clamp/hard": ({"limit": 1.2, "form": "hard"}, Hand(clamp=1.2)),
    "freeze": ({"modules": ["encoder.0"], "evaluating": False}, Frozen()),
    "gradual_unfreezing": ({"hold": 0.125, "complete": 0.625}, TopFirst()),
    "activation_checkpointing": ({"modules": ["encoder", "norm"]}, Hand()),
    "skip_nonfinite": ({}, Hand()),
    "safe_cross_entropy": ({}, Hand()),
}
LOOPS = {
    "own order": CASES,
    "own autocast": ("logit_temperature", "loss_clamp", "freeze", "activation_checkpointing"),
    "own scaler": ("logit_temperature", "gradual_unfreezing", "activation_checkpointing"),
    "two optimizers": ("loss_clamp/hard", "freeze", "activation_checkpointing", "skip_nonfinite"),
}


@pytest.mark.parametrize(
    ("loop", "case"), [(loop, case) for loop, cases in LOOPS.items() for case in cases]
)
def test_is_the_loop_written_by_hand_to_the_bit(loop, case):
    given, hand = CASES[case]
    losses, trained = by_hand(loop, copy.deepcopy(hand))
    records, run, _ = foreign(loop, {case.partition("/")[0]: given})
    assert [record.loss for record in records] == losses
    assert same(state_of(run.trained), state_of(trained)) == ""
    _, untouched = by_hand(loop, Hand())
    acts = same(state_of(trained), state_of(untouched)) != ""
    assert acts == (type(hand) is not Hand or hand != Hand())
    assert len(losses) == STEPS
