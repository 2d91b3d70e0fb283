"""What samplers remember and are told: it decides the order of a pass, as random streams do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def begin_pass(loader: Any, number: int) -> None:
    """Tell a loader the number of the pass that begins, from 0, where it or its parts ask for it.

    It is what a loop over epochs does by hand: `sampler.set_epoch(epoch)`.
    """
    if hasattr(loader, "base_dataloader"):  # Accelerate's tells its parts what it counts itself
        loader.iteration = number
        return
    batches = getattr(loader, "batch_sampler", None)
    parts = (
        loader,
        getattr(loader, "sampler", None),
        batches,
        getattr(batches, "sampler", None),
        getattr(loader, "dataset", None),
    )
    for part in {id(part): part for part in parts}.values():
        if callable(set_epoch := getattr(part, "set_epoch", None)):
            set_epoch(number)


def draws_at_once(*samplers: Any) -> bool:
    """Whether samplers are known to draw a pass at once, or from generators of their own."""
    known = ("torch.", "torchdata.", "accelerate.", "transformers.", "builtins.")
    return all(
        (type(each).__module__ + ".").startswith(known) for each in samplers if each is not None
    )


def generators(*owners: Any) -> list[torch.Generator]:
    """Return the random generators that loaders and samplers have of their own, once."""
    found = [getattr(owner, "generator", None) for owner in owners]
    return list({id(g): g for g in found if isinstance(g, torch.Generator)}.values())


def sampler_state(sampler: Any) -> Any:
    """Return what a sampler remembers: its state_dict, or the epoch it was told."""
    if hasattr(sampler, "state_dict") and hasattr(sampler, "load_state_dict"):
        return {"state": sampler.state_dict()}
    epoch = getattr(sampler, "epoch", None)
    return {"epoch": epoch} if isinstance(epoch, int) else {}


def set_sampler_state(sampler: Any, saved: Mapping[str, Any]) -> None:
    """Put back what `sampler_state` found."""
    if "state" in saved:
        sampler.load_state_dict(saved["state"])
    elif "epoch" in saved:
        sampler.epoch = saved["epoch"]
