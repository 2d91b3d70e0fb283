"""Faults in the forward pass: the operation's result is not finite although its inputs are."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from instruments.locate_harness import Table
from torch import nn

FORWARD = Table()
loss, module = FORWARD.loss, FORWARD.module


@loss("log", "log_of_zero")
def log_of_zero(net, x):
    zero = net(x) * 0
    return zero.log().mean()  # here


@loss("log", "log_of_negative")
def log_of_negative(net, x):
    return (-net(x).square() - 1).log().sum()  # here


@loss("log1p", "log_of_zero")
def log1p_at_minus_one(net, x):
    return torch.log1p(net(x) * 0 - 1).mean()  # here


@loss("log2", "log_of_zero")
def log2_of_zero(net, x):
    return torch.log2(net(x).relu() * 0).mean()  # here


@loss("log", "log_of_zero")
def log_of_a_vanished_probability(net, x):
    p = (net(x) * 1e4).softmax(1)
    return -(p.log()).mean()  # here


@loss("log", "log_of_zero")
def entropy_of_a_certain_prediction(net, x):
    p = (net(x) * 1e5).softmax(1)
    return -(p * torch.log(p)).sum()  # here


@loss("sqrt", "sqrt_of_negative")
def sqrt_of_negative(net, x):
    return (-net(x).square() - 1).sqrt().mean()  # here


@loss("rsqrt", "division_by_zero")
def rsqrt_of_zero(net, x):
    return (net(x) * 0).rsqrt().mean()  # here


@loss("rsqrt", "sqrt_of_negative")
def rsqrt_of_negative(net, x):
    return (-net(x).square() - 1).rsqrt().mean()  # here


@loss("div", "zero_over_zero")
def zero_over_zero(net, x):
    h = net(x) * 0
    return (h / h).mean()  # here


@loss("div", "division_by_zero")
def division_by_zero(net, x):
    return (net(x) / (x * 0)).mean()  # here


@loss("div", "division_by_zero")
def number_over_zero(net, x):
    count = (x > 1e6).float().sum()
    ratio = x.numel() / count  # here
    return (net(x) * 0.5 * ratio).mean()


@loss("div", "zero_over_zero")
def masked_mean_over_nothing(net, x):
    mask = (x > 1e6).float()
    return (net(x) * mask).sum() / mask.sum()  # here


@loss("div", "zero_over_zero", sample_index=[2])
def vector_over_its_norm(net, x):
    h = net(x) * torch.tensor([[1.0], [1.0], [0.0], [1.0]])
    return (h / h.norm(dim=1, keepdim=True)).mean()  # here


@loss("div", "zero_over_zero")
def own_batch_norm_of_constants(net, x):
    h = net(x * 0)
    return ((h - h.mean(0)) / h.var(0, unbiased=False)).mean()  # here


@loss("std", "std_of_one")
def advantages_of_one_sample(net, x):
    h = net(x[:1])[:, 0]
    return (h * (h.detach() / (h.detach().std() + 1e-8))).mean()  # here


@loss("var", "std_of_one")
def variance_of_one_sample(net, x):
    return net(x)[:1].var(0).mean()  # here


@loss("mean", "empty_mean")
def mean_of_nothing(net, x):
    h = net(x)
    return h[x > 1e6].mean() + h.mean()  # here


@loss("softmax", "masked_row", sample_index=[1])
def fully_masked_row(net, x):
    mask = torch.zeros(4, 6, dtype=torch.bool)
    mask[1] = True
    weights = net(x).masked_fill(mask, float("-inf")).softmax(1)  # here
    return (weights * net(x)).square().mean()


@loss("softmax", "masked_row")
def fully_masked_row_by_logarithm(net, x):
    visible = torch.ones(4, 6)
    visible[3] = 0
    bias = torch.log(visible)
    return F.nll_loss((net(x) + bias).softmax(1), torch.arange(4)) + net(x).mean()  # here


@loss("log_softmax", "masked_row")
def fully_masked_log_softmax(net, x):
    scores = torch.where(x > 1e6, net(x), float("-inf"))
    return (scores.log_softmax(1) * net(x)).mean()  # here


@loss("logsumexp", "masked_row")
def logsumexp_of_a_masked_row(net, x):
    scores = net(x) + torch.full((4, 6), float("-inf"))
    return scores.logsumexp(1).mean()  # here


@loss("cross_entropy", "label_masked")
def label_of_a_masked_class(net, x):
    scores = net(x).masked_fill(torch.arange(6) == 2, float("-inf"))
    return F.cross_entropy(scores, torch.tensor([0, 1, 2, 3]))  # here


@loss("mul", "zero_times_inf")
def entropy_of_masked_classes(net, x):
    scores = net(x).masked_fill(torch.arange(6) == 2, float("-inf"))
    return -(scores.softmax(1) * scores.log_softmax(1)).sum(1).mean()  # here


@loss("mul", "zero_times_inf")
def mask_by_multiplying_infinity(net, x):
    mask = (x > 0).float()
    return (net(x) + mask * float("-inf")).softmax(1).mean()  # here


@loss("exp", "exp_overflow")
def exp_overflow(net, x):
    return (net(x) * 1e4).exp().mean()  # here


@loss("exp", "exp_overflow")
def own_softmax_without_maximum(net, x):
    e = torch.exp(net(x) * 1e4)  # here
    return (e / e.sum(1, keepdim=True)).mean()


@loss("expm1", "exp_overflow")
def expm1_overflow(net, x):
    return torch.expm1(net(x).abs() * 1e4).mean()  # here


@loss("cosh", "exp_overflow")
def log_cosh_loss(net, x):
    return torch.log(torch.cosh(net(x) * 1e3)).mean()  # here


@loss("exp", "exp_overflow")
def variational_loss(net, x):
    mu, logvar = net(x).chunk(2, dim=1)
    logvar = logvar * 1e3
    return -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).mean()  # here


@loss("pow", "pow")
def negative_power_of_zero(net, x):
    return (net(x) * 0).pow(-1.5).mean()  # here


@loss("pow", "pow")
def fractional_power_of_negative(net, x):
    return (-net(x).abs() - 1).pow(0.3).mean()  # here


@loss("acos", "acos_at_one")
def acos_beyond_one(net, x):
    return torch.acos(net(x).square() + 1.1).mean()  # here


@loss("logit", "logit_at_edge")
def logit_of_one(net, x):
    return torch.logit(net(x) * 0 + 1).mean()  # here


@loss("erfinv", "logit_at_edge")
def erfinv_of_one(net, x):
    return torch.erfinv(net(x) * 0 + 1).mean()  # here


@loss("atanh", "logit_at_edge")
def atanh_of_one(net, x):
    return torch.atanh((net(x) * 1e4).tanh()).mean()  # here


@loss("ctc_loss", "loss_infinite")
def ctc_target_too_long(net, x):
    logp = net(x)[:, None].expand(4, 2, 6).log_softmax(-1)
    target = torch.tensor([[1, 2, 3, 4, 5], [1, 2, 3, 4, 5]])
    return F.ctc_loss(logp, target, torch.tensor([4, 4]), torch.tensor([2, 5]))  # here


@loss("matmul", "overflow", module="first")
def exploded_weights(net, x):
    with torch.no_grad():
        net.first.weight.fill_(3e38)
    return net(x).square().mean()  # here


@loss("pow", "overflow")
def square_of_huge(net, x):
    return (net(x) * 1e30).pow(2).mean()  # here


@loss("mul", "overflow")
def product_of_huge(net, x):
    h = net(x) * 1e30
    return (h * h).mean()  # here


@loss("sub", "inf_minus_inf")
def written_infinities_subtracted(net, x):
    best = torch.full((4,), float("inf"))
    worst = torch.full((4,), float("inf"))
    return (net(x).sum(1) * (best - worst)).mean()  # here


@loss("prod", "overflow")
def product_overflow(net, x):
    return (net(x) * 1e12).prod(1).mean()  # here


@loss("to", "fp16_overflow")
def cast_to_float16(net, x):
    return (net(x) * 1e6).half().float().mean()  # here


@loss("matmul", "fp16_overflow")
def float16_scores(net, x):
    h = (net(x) * 1e3).to(torch.float16)
    scores = h @ h.T  # here
    return scores.softmax(-1).float().mean()


@module("log", "log_of_zero")
class LogInAModule(nn.Module):
    def forward(self, h):
        return (h * 0).log()  # here


@module("div", "zero_over_zero")
class NormaliseInHalf(nn.Module):
    def forward(self, h):
        return F.normalize(h.half() * 0, dim=1)  # here


@module("layer_norm", "zero_variance", module="tested.norm")
class LayerNormWithoutEps(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(6, eps=0.0)

    def forward(self, h):
        return self.norm(h * 0)  # here


@module("matmul", "nonfinite_parameter", phase="parameter", parameter="tested.bias")
class BiasNeverInitialised(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(6, 6))
        self.bias = nn.Parameter(torch.full((6,), math.nan))  # what torch.empty may hold

    def forward(self, h):
        return F.linear(h, self.weight, self.bias)  # here


@module("mul", "uninitialised_memory")
class UninitialisedMemory(nn.Module):
    def forward(self, h):
        with torch.random.fork_rng():
            was = torch.are_deterministic_algorithms_enabled()
            torch.use_deterministic_algorithms(True)
            scale = torch.empty(4, 6)
            torch.use_deterministic_algorithms(was)
        return h * scale  # here


@module("exp", "exp_overflow")
class ExpInHalf(nn.Module):
    def forward(self, h):
        return (h.half().abs() * 100).exp()  # here


@module("matmul", "fp16_overflow")
class MatmulUnderAutocast(nn.Module):
    def forward(self, h):
        with torch.autocast("cpu", dtype=torch.float16):
            return (h * 1e3) @ (h * 1e3).T  # here


@module("log", "log_of_zero")
class LogUnderBfloat16Autocast(nn.Module):
    def forward(self, h):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            g = h @ h.T
            return (g * 0).log()  # here


@module("log", "log_of_zero")
class LogUnderCheckpoint(nn.Module):
    def forward(self, h):
        return torch.utils.checkpoint.checkpoint(self.inner, h, use_reentrant=False)

    def inner(self, h):
        return (h * 0).log()  # here


@module("div", "zero_over_zero")
class DivisionUnderReentrantCheckpoint(nn.Module):
    def forward(self, h):
        return torch.utils.checkpoint.checkpoint(self.inner, h, use_reentrant=True)

    def inner(self, h):
        return h * 0 / (h * 0)  # here


class OwnLog(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h):
        ctx.save_for_backward(h)
        return (h * 0).log()  # here

    @staticmethod
    def backward(ctx, g):
        return g


@module("log", "log_of_zero")
class CustomFunctionForward(nn.Module):
    def forward(self, h):
        return OwnLog.apply(h)
