"""Foreign loops under a run with stabilisers, and replays of them."""

from __future__ import annotations

from functools import partial

import torch
from interventions.foreign_loops import LOOPS, Bare, Hand, state_of

from stabexp.state.random_streams import seed_everything
from stabexp.training import Fork, Run, RunSettings, execute
from stabexp.training.execute import prepare
from stabexp.training.settings import Program

STEPS = 8


def settings(stabilisers=(), **given):
    usual = {"name": "test", "steps": STEPS, "checkpoint_every": 3, "detectors": {"non_finite": {}}}
    return RunSettings(**{**usual, **given}, stabilisers=dict(stabilisers))


def stabilised(train, stabilisers=(), *, fork=None, store=None, **given):
    """Return the records of a training under a run, the run and what stabilisers told of."""
    records, events = [], []
    run = Run(
        settings(stabilisers, **given),
        fork=fork,
        keep_saving=store is not None,
        checkpoints=store,
        on_step=records.append,
        on_event=events.append,
    )
    execute(Program(settings=run.settings, train=train), run)
    return records, run, events


def foreign(loop, stabilisers=(), *, hand=None, **given):
    """Return what `stabilised` does, of a loop by name."""
    return stabilised(partial(LOOPS[loop][0], hand=hand or Hand()), stabilisers, **given)


def by_hand(loop, hand):
    """Return the losses per update of a loop without stabexp, and what it trained."""
    train, accumulate = LOOPS[loop]
    bare = Bare(hand, steps=STEPS, accumulate=accumulate)
    prepare(settings())
    seed_everything(0)
    train(bare, hand)
    losses = torch.tensor(bare.losses).reshape(-1, accumulate)
    return losses.mean(1).tolist(), bare.trained


def facts(records):
    """Return of each record what a replay must repeat, as text: NaN is NaN there."""
    return [
        repr((r.step, r.loss, r.grad_norm, r.digest, r.clip_coefficient, dict(r.metrics)))
        for r in records
    ]


__all__ = ["STEPS", "Fork", "by_hand", "facts", "foreign", "settings", "stabilised", "state_of"]
