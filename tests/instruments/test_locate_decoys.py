"""Infinities that are meant and trainings that are well: nothing may be reported as a fault."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from instruments.locate_harness import Net, train
from torch import nn

DECOYS = []


def decoy(function):
    DECOYS.append(function)
    return function


@decoy
def plain_training(net, x):
    return F.cross_entropy(net(x), torch.arange(4))


@decoy
def causal_mask_by_masked_fill(net, x):
    h = net(x)
    future = torch.ones(4, 4, dtype=torch.bool).triu(1)
    weights = (h @ h.T).masked_fill(future, float("-inf")).softmax(1)
    return (weights @ h).square().mean()


@decoy
def causal_mask_by_full_and_triu(net, x):
    h = net(x)
    mask = torch.full((4, 4), float("-inf")).triu(1)
    return ((h @ h.T + mask).softmax(1) @ h).square().mean()


@decoy
def causal_mask_by_where(net, x):
    h = net(x)
    scores = torch.where(torch.ones(4, 4).tril() > 0, h @ h.T, float("-inf"))
    return (scores.softmax(1) @ h).square().mean()


@decoy
def causal_mask_by_logarithm(net, x):
    h = net(x)
    return ((h @ h.T + torch.ones(4, 4).tril().log()).softmax(1) @ h).square().mean()


@decoy
def library_attention_with_a_mask(net, x):
    h = net(x)[None]
    return F.scaled_dot_product_attention(h, h, h, is_causal=True).square().mean()


@decoy
def transformer_mask_from_torch(net, x):
    h = net(x)
    return ((h @ h.T + nn.Transformer.generate_square_subsequent_mask(4)).softmax(1) @ h).mean()


@decoy
def masked_classes_that_are_no_label(net, x):
    scores = net(x).masked_fill(torch.arange(6) == 5, float("-inf"))
    return F.cross_entropy(scores, torch.arange(4))


@decoy
def some_ignored_labels(net, x):
    return F.cross_entropy(net(x), torch.tensor([0, -100, 2, -100]))


@decoy
def largest_over_a_masked_axis(net, x):
    return net(x).masked_fill(x > 0.5, float("-inf")).amax(1).clamp(min=-10).mean()


@decoy
def top_k_sampling_filter(net, x):
    h = net(x)
    kept = h.masked_fill(h < h.topk(2).values[:, -1:], float("-inf"))
    return -(h.softmax(1) * kept.softmax(1).detach()).sum(1).mean()


@decoy
def norm_of_zero(net, x):
    return (net(x) * 0).norm(dim=1).sum() + (net(x) * 0).norm()


@decoy
def pairwise_distance_of_equals(net, x):
    h = net(x)
    return torch.cdist(h, h).mean() + F.pairwise_distance(h, h).mean()


@decoy
def normalised_zero(net, x):
    return F.normalize(net(x) * 0, dim=1).sum() * 1e-6


@decoy
def cosine_of_zero(net, x):
    return F.cosine_similarity(net(x) * 0, net(x)).sum() * 1e-6


@decoy
def atan2_of_the_origin(net, x):
    h = net(x) * 0
    return torch.atan2(h[:, 0], h[:, 1]).sum()


@decoy
def deviation_of_equal_values(net, x):
    return net(x[:1].expand(4, 6)).std(0).mean()


@decoy
def product_with_a_zero(net, x):
    return (net(x) * (torch.arange(6) > 0)).prod(1).sum() + net(x).cumprod(1).sum()


@decoy
def square_root_behind_a_relu(net, x):
    return (-net(x).abs()).relu().sqrt().sum()


@decoy
def double_where(net, x):
    h = net(x)
    safe = torch.where(h > 0, h, 1.0)
    return torch.where(h > 0, safe.log().square(), h).mean()


@decoy
def binary_cross_entropy_at_the_edge(net, x):
    return F.binary_cross_entropy((net(x) * 1e4).sigmoid(), (x > 0).float())


@decoy
def divergence_with_zero_targets(net, x):
    target = F.one_hot(torch.arange(4), 6).float()
    return F.kl_div(net(x).log_softmax(1), target, reduction="batchmean")


@decoy
def ctc_loss_of_a_possible_target(net, x):
    logp = net(x)[:, None].log_softmax(-1)
    return F.ctc_loss(logp, torch.tensor([[1, 2]]), torch.tensor([4]), torch.tensor([2]))


@decoy
def infinity_kept_as_a_starting_value(net, x):
    best = torch.full((4,), float("inf"))
    return torch.minimum(best, net(x).square().sum(1)).mean()


@decoy
def unwritten_memory_that_is_filled(net, x):
    out = torch.empty(4, 6)
    out[:2] = net(x)[:2]
    out[2:] = 1.0
    return out.mean()


@decoy
def values_beyond_range_clamped(net, x):
    return (net(x).detach() * 1e38 * 1e38).clamp(-1, 1).mean() + net(x).mean()


@decoy
def metrics_that_are_not_finite(net, x):
    with torch.no_grad():
        _ = (net(x) * 0).log().mean().item(), (x * 0 / 0).mean()
    return net(x).square().mean()


@pytest.mark.parametrize("function", DECOYS, ids=[item.__name__ for item in DECOYS])
def test_reports_nothing_for(function):
    def step(net, optimizer, batch, log):
        optimizer.zero_grad()
        loss = function(net, batch)
        log(loss)
        loss.backward()
        optimizer.step()
        assert all(p.isfinite().all() for p in net.parameters())

    assert train(step, Net(), steps=2) is None


def test_a_loss_of_ignored_labels_only_is_harmless():
    def step(net, optimizer, batch, log):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(batch), torch.full((4,), -100))
        log(loss)
        loss.backward()
        optimizer.step()

    found = train(step, Net(), steps=2)
    assert (found["harmless"], found["operation"], found["step"]) == (True, "cross_entropy", 0)


def test_harm_counts_more_than_something_harmless_before_it():
    def step(net, optimizer, batch, log):
        optimizer.zero_grad()
        ignored = F.cross_entropy(net(batch), torch.full((4,), -100))
        first = batch[0, 0] == batches(0)[0, 0]
        loss = ignored if first else (net(batch) * 0).log().mean()
        log(loss)
        loss.backward()
        optimizer.step()

    def batches(index):
        return torch.full((4, 6), float(index + 1))

    found = train(step, Net(), steps=3, batches=batches)
    assert (found["harmless"], found["operation"], found["step"]) == (False, "log", 1)


def test_an_update_left_out_by_the_loss_scaling_is_harmless():
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)

    def step(net, optimizer, batch, log):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = net(batch).square().mean()
        log(loss)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    found = train(step, Net(), steps=2)
    assert found is None or found["harmless"]


def test_a_mask_kept_as_a_buffer_is_no_fault():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", torch.full((4, 4), float("-inf")).triu(1))

        def forward(self, h):
            return (h @ h.T + self.mask).softmax(1) @ h

    def step(net, optimizer, batch, log):
        loss = net(batch).square().mean()
        log(loss)
        loss.backward()
        optimizer.step()

    assert train(step, Net(Masked()), steps=2) is None
