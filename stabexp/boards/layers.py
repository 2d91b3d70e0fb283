"""Which layers get series of their own: a Prometheus server pays for every one.

Up to the limit all do. Of more, as many are taken as the limit allows, at even distances over the
depth of the model, the first and the last always among them: the same ones at every scrape, so that
no series comes and goes. Nothing alarming is hidden by it, for the largest and smallest figures are
taken over all layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase


def shown_layers(layers: Sequence[str], *, most: int, patterns: Sequence[str] = ()) -> list[str]:
    """Return the layers to show, in the order of the model.

    Args:
        layers: All, in the order of the model.
        most: How many at most; 0 shows none.
        patterns: Shell patterns ("encoder.*") of which one must match; empty for all.
    """
    wanted = [
        layer
        for layer in layers
        if not patterns or any(fnmatchcase(layer, pattern) for pattern in patterns)
    ]
    if len(wanted) <= most:
        return wanted
    if most <= 1:
        return wanted[-1:] if most else []
    return [wanted[round(i * (len(wanted) - 1) / (most - 1))] for i in range(most)]
