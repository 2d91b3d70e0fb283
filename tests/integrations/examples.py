"""What every example training of `experiments/trainers/` has to show, whichever trainer it has."""

from __future__ import annotations

from stabexp import api


def breaks_no_rule(result, root):
    """A healthy run trains to its end, and no rule of its step is broken."""
    assert result.divergence is None
    verdict = api.check(result.directory.name, root=root, drain_seconds=0)
    assert verdict.cause == "inconclusive"
    (rules,) = [one for one in verdict.path if one.node == "rules"]
    assert rules.answer == "no"


def is_bisected_to(cause, result, root):
    """A run with a seeded fault diverges, and the verdict is that fault."""
    assert result.divergence is not None
    verdict = api.bisect(result.directory.name, root=root, workers=0, drain_seconds=0)
    assert verdict.cause == cause
    assert verdict.confidence > 0.9
