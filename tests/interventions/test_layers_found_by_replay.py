"""A real fault hidden in one layer of a real training is found by replaying with layers changed."""

from __future__ import annotations

import pytest
import torch
from interventions.hand_written import course, parts
from torch import nn

from stabexp.bisection.layer_search import decide, next_questions


class Deep(nn.Module):
    """Blocks that normalise what comes in; one of them may compute in too large numbers."""

    def __init__(self, depth=6, loud=()):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.ModuleDict({"norm": nn.LayerNorm(6), "fc": nn.Linear(6, 6)}) for _ in range(depth)
        )
        self.head = nn.Linear(6, 3)
        with torch.no_grad():
            for index in loud:
                self.blocks[index].fc.weight.mul_(1e6)  # float16 ends at 65,504

    def forward(self, x):
        for block in self.blocks:
            x = block.fc(block.norm(x))
        return self.head(nn.functional.layer_norm(x, (6,)))


def found_by(make, dose, *, limit, hint=(), **how):
    """Search with replays as the oracle; return the decision and how many replays it took."""
    model, _ = make("sgd")
    names = [name for name, _ in model.named_modules()]
    outcomes = {}
    while (decision := decide(outcomes, names=names, hint=hint)) is None:
        (question,) = next_questions(outcomes, names=names, hint=hint)
        seen = course("sgd", make=make, interventions=dose(question), scheduled=False, **how)
        outcomes[question] = "cured" if within(seen, limit) else "diverged"
    return decision, len(outcomes)


def within(seen, limit):
    return all(bool((value.abs() < limit).all()) for value in seen[-1].values())


@pytest.mark.parametrize("loud", [(3,), (1, 4)])
def test_the_modules_that_overflow_in_float16_are_named(loud):
    def make(optimizer, *, tensor_rate=False):
        torch.manual_seed(3)
        model = Deep(loud=loud)
        return parts(optimizer, groups=[{"params": list(model.parameters())}], model=model)

    def dose(modules):
        return {"exact_modules": ",".join(sorted(modules))}

    how = {"autocast": torch.float16, "steps": 2}
    assert not within(course("sgd", make=make, **how), torch.inf)
    guilty = tuple(f"blocks.{index}.fc" for index in loud)
    decision, replays = found_by(make, dose, limit=torch.inf, **how)
    assert decision.modules == guilty
    hinted, few = found_by(make, dose, limit=torch.inf, hint=guilty, **how)
    assert hinted.modules == guilty
    assert hinted.hinted
    assert few < replays


def test_the_layer_whose_rate_is_too_high_is_named():
    def make(optimizer, *, tensor_rate=False):
        torch.manual_seed(3)
        model = Deep()
        wild = list(model.blocks[2].fc.parameters())
        rest = [p for p in model.parameters() if all(p is not other for other in wild)]
        groups = [{"params": rest, "lr": 0.01}, {"params": wild, "lr": 1e5}]
        return parts(optimizer, groups=groups, model=model)

    def dose(modules):
        return {"layer_rate": ",".join(f"{name}=0" for name in sorted(modules))}

    decision, replays = found_by(make, dose, limit=1e3, steps=4)
    assert decision.modules == ("blocks.2.fc",)
    assert replays <= 8
