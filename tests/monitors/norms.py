"""Norms the slow and obvious way."""

from __future__ import annotations

import math

import torch


def norms_of(parameters):
    return torch.stack([p.grad.norm() for p in parameters])


def slow_norm(tensors):
    return math.sqrt(sum(x * x for t in tensors for x in t.detach().flatten().tolist()))
