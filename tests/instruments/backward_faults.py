"""Faults in the backward pass: the loss is finite, and a gradient is not."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from instruments.locate_harness import Table
from torch import nn
from torch.utils.checkpoint import checkpoint

BACKWARD = Table()


def loss(operation, reason, **more):
    return BACKWARD.loss(operation, reason, more.pop("phase", "backward"), **more)


def module(operation, reason, **more):
    return BACKWARD.module(operation, reason, more.pop("phase", "backward"), **more)


@loss("sqrt", "sqrt_at_zero")
def distance_of_a_pair_of_equals(net, x):
    d2 = (net(x) - net(x.clone())).square().sum(1)
    d = d2.sqrt()  # here
    return d.mean()


@loss("sqrt", "sqrt_at_zero", sample_index=[3])
def distance_in_one_row(net, x):
    h = net(x) * torch.tensor([1.0, 1.0, 1.0, 0.0])[:, None]
    return ((h**2).sum(1).sqrt() - 1).square().mean()  # here


@loss("sqrt", "sqrt_at_zero")
def sqrt_of_masked_values(net, x):
    return (net(x) * (x > 1e6)).sqrt().sum()  # here


@loss("sqrt", "sqrt_at_zero")
def gradient_penalty_of_a_flat_critic(net, x):
    h = x.clone().requires_grad_()
    (g,) = torch.autograd.grad((net(h) - 1e3).relu().sum(), h, create_graph=True)
    norm = g.square().sum(1).sqrt()  # here
    return net(x).mean() + (norm - 1).square().mean()


@loss("pow", "pow")
def power_below_one_at_zero(net, x):
    return ((net(x) * 0) ** 0.5).sum()  # here


@loss("pow", "pow")
def cube_root_at_zero(net, x):
    return torch.pow((net(x) * 0).abs(), 1 / 3).mean()  # here


@loss("acos", "acos_at_one")
def angle_between_equals(net, x):
    h = F.normalize(net(x), dim=1)
    cosine = (h * 0 + 1).mean(1)
    return torch.acos(cosine).sum()  # here


@loss("asin", "acos_at_one")
def asin_at_minus_one(net, x):
    return torch.asin(net(x) * 0 - 1).mean()  # here


@loss("log", "where_branch")
def branch_not_taken_at_zero(net, x):
    h = net(x).abs() * (x > 0)
    return torch.where(h > 0, h.log(), h).mean()  # here


@loss("log", "where_branch", phase="forward")
def branch_not_taken_below_zero(net, x):
    h = net(x)
    return torch.where(h > 0, (h.log() - 1) ** 2, h).mean()  # here


@loss("div", "where_branch", phase="forward")
def guarded_division(net, x):
    h = net(x).abs() * (x > 0)
    ratio = 1 / h  # here
    return torch.where(h > 0, ratio, h).mean()


@loss("div", "where_branch")
def result_repaired_by_nan_to_num(net, x):
    h = net(x) * 0
    return torch.nan_to_num(h / h.sum(1, keepdim=True)).sum()  # here


@loss("hypot", "norm_at_zero")
def hypot_at_the_origin(net, x):
    h = net(x) * 0
    return torch.hypot(h[:, 0], h[:, 1]).sum()  # here


@loss("rsqrt", "division_by_zero", phase="forward")
def rsqrt_of_equal_rows(net, x):
    h = net(x)
    return ((h - h).square().sum(1).rsqrt() * 0).sum()  # here


@loss("matmul", "fp16_overflow")
def scaled_gradient_in_float16(net, x):
    h = (net(x) * 0.01).half()
    return (h @ torch.full((6, 1), 6e4, dtype=torch.float16)).float().mul(1e4).sum()  # here


@loss("mul", "overflow")
def steep_polynomial(net, x):
    h = net(x) * 1e-30
    return (h * 1e38 * 1e38).clamp(-1, 1).sum() + (h * 3e38).mul(10.0).sum()  # here


@loss("log", "where_branch")
def logarithm_clamped_afterwards(net, x):
    p = net(x).abs() * (x > 0)
    return p.log().clamp(min=-100).mul(-1).sum()  # here


@loss("linalg_eigh", "equal_eigenvalues")
def eigenvectors_of_the_identity(net, x):
    h = net(x) * 0
    _, vectors = torch.linalg.eigh(torch.eye(6) + h.T @ h)  # here
    return (vectors * torch.arange(36.0).reshape(6, 6)).sum()


@module("sqrt", "sqrt_at_zero")
class SqrtInAModule(nn.Module):
    def forward(self, h):
        return (h * 0).sqrt()  # here


@module("sqrt", "sqrt_at_zero")
class SqrtUnderCheckpoint(nn.Module):
    def forward(self, h):
        return checkpoint(self.inner, h, use_reentrant=False)

    def inner(self, h):
        return (h * 0).sqrt()  # here


@module("sqrt", "sqrt_at_zero")
class SqrtUnderReentrantCheckpoint(nn.Module):
    def forward(self, h):
        return checkpoint(self.inner, h, use_reentrant=True)

    def inner(self, h):
        return (h * 0).sqrt()  # here


@module("sqrt", "sqrt_at_zero")
class SqrtUnderAutocast(nn.Module):
    def forward(self, h):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return ((h @ h.T) * 0).sqrt()  # here


class OwnSqrt(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h):
        root = h.sqrt()
        ctx.save_for_backward(root)
        return root

    @staticmethod
    def backward(ctx, g):
        (root,) = ctx.saved_tensors
        return g / (2 * root)  # here


@BACKWARD.module("div", "division_by_zero", "backward", source_of=OwnSqrt)
class CustomFunctionBackward(nn.Module):
    def forward(self, h):
        return OwnSqrt.apply(h * 0)


@module("sqrt", "sqrt_at_zero", module="tested.inner")
class SqrtInANestedModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = SqrtInAModule()

    def forward(self, h):
        return self.inner(h)
