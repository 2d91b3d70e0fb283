"""Attention in the four ways it is written, compiled, and what is none."""

from __future__ import annotations

import math

import pytest
import torch
from monitors.norms import measure
from torch import nn
from torch.nn import functional as F

from stabexp.monitors.attention import Attention


class Attending(nn.Module):
    """The same attention, computed in the four ways that people write it."""

    def __init__(self, way):
        super().__init__()
        self.way = way
        self.inside = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 1)

    def forward(self, x, mask):
        if self.way in {"module", "module with weights"}:
            weights = self.way == "module with weights"
            out, _ = self.inside(x, x, x, attn_mask=mask, need_weights=weights)
            return self.head(out)
        qkv = F.linear(x, self.inside.in_proj_weight, self.inside.in_proj_bias)
        q, k, v = (t.unflatten(-1, (2, 4)).transpose(1, 2) for t in qkv.chunk(3, dim=-1))
        if self.way == "function":
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=~mask)
        else:
            scores = (q @ k.transpose(-2, -1) / 2.0).masked_fill(mask, -math.inf)
            out = scores.softmax(-1) @ v
        return self.head(out.transpose(1, 2).flatten(-2))


@pytest.mark.parametrize("way", ["module", "module with weights", "function", "written out"])
def test_attention_is_seen_however_it_is_computed(way):
    torch.manual_seed(0)
    model = Attending(way)
    x = torch.randn(2, 5, 8)
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1)
    seen = measure(Attention(), model, lambda: model(x, mask).pow(2).sum())
    with torch.no_grad():
        torch.manual_seed(0)
        fresh = Attending(way).inside
        q, k, _ = F.linear(x, fresh.in_proj_weight, fresh.in_proj_bias).chunk(3, dim=-1)
        q, k = (t.unflatten(-1, (2, 4)).transpose(1, 2) for t in (q, k))
        scores = (q @ k.transpose(-2, -1) / 2.0).masked_fill(mask, -math.inf)
        entropy = torch.special.entr(scores.softmax(-1)).sum(-1).mean().item()
    (layer,) = {name.split("/")[1] for name in seen}
    assert layer == ("inside" if way.startswith("module") else "model")
    assert seen[f"layers/{layer}/attention_logit"] == pytest.approx(scores.max().item(), rel=1e-4)
    assert seen[f"layers/{layer}/attention_entropy"] == pytest.approx(entropy, rel=1e-4)
    assert seen[f"layers/{layer}/attention_empty"] == 0.0


@pytest.mark.parametrize("way", ["function", "written out"])
def test_rows_that_may_attend_to_nothing_are_counted(way):
    torch.manual_seed(0)
    model = Attending(way)
    x = torch.randn(2, 5, 8)
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1)
    mask[0] = True  # one row of five is masked whole
    seen = measure(Attention(), model, lambda: model(x, mask).nan_to_num().pow(2).sum())
    assert seen["layers/model/attention_empty"] == pytest.approx(0.2)


def test_a_softmax_over_classes_is_no_attention(model):
    x = torch.randn(7, 4)
    assert measure(Attention(), model, lambda: model(x).softmax(-1).pow(2).sum()) == {}


def test_a_forward_that_raises_leaves_torch_as_it_was():
    model = Attending("function")
    monitor = Attention()
    monitor.attach(model)
    monitor.step_begins()
    with pytest.raises(RuntimeError):
        model(torch.randn(2, 5, 3), torch.zeros(5, 5, dtype=torch.bool))
    assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    monitor.detach()


def test_compiled_code_runs_compiled_and_unseen_beneath_the_monitor():
    counted = []

    def backend(graph, inputs):
        counted.append(graph)
        return graph.forward

    class Compiled(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(8, 1)
            self.mix = torch.compile(
                lambda x: (x @ x.transpose(1, 2)).softmax(-1) @ x, backend=backend
            )

        def forward(self, x):
            return self.head(self.mix(x))

    model = Compiled()
    measure(Attention(), model, lambda: model(torch.randn(2, 5, 8)).pow(2).sum())
    assert len(counted) == 1
