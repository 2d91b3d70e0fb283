"""The layers come from the top down, by the step alone."""

from __future__ import annotations

import pytest
from stabilisers.stabilised import Fork, foreign
from torch import nn

from stabexp.errors import ConfigError
from stabexp.stabilisers import build
from stabexp.stabilisers.model_parts import blocks, stages
from stabexp.state import CheckpointStore
from stabexp.tasks.gpt import GPT


def prepared(model, known, **given):
    stabiliser = build({"gradual_unfreezing": given})["gradual_unfreezing"]
    stabiliser.plan(steps=known, scaler=None)
    stabiliser.attach(model, [], step=0)
    return stabiliser


def test_a_transformer_is_unfrozen_block_by_block_and_a_tied_weight_counts_as_top():
    model = GPT(width=8, heads=2, layers=3).model()
    assert stages(model) == [
        ["tokens", "positions"],
        ["blocks.0"],
        ["blocks.1"],
        ["blocks.2"],
        ["norm", "head"],
    ]
    assert blocks(model) == ["blocks.0", "blocks.1", "blocks.2"]
    stabiliser = prepared(model, 100)
    trains = {}
    for step in range(100):
        stabiliser.batch_begins(step)
        names = {name for name, p in model.named_parameters() if p.requires_grad}
        tops = {".".join(name.split(".")[:2]) if "blocks" in name else name for name in names}
        trains.setdefault(frozenset(tops), step)
        stabiliser.batch_ends()
    head = {"norm.weight", "norm.bias", "tokens.weight"}  # the head's weight is the embedding's
    assert trains == {
        frozenset(head): 0,
        frozenset(head | {"blocks.2"}): 10,
        frozenset(head | {"blocks.2", "blocks.1"}): 20,
        frozenset(head | {"blocks.2", "blocks.1", "blocks.0"}): 30,
        frozenset(head | {"blocks.2", "blocks.1", "blocks.0", "positions.weight"}): 40,
    }
    messages = [event["message"] for event in stabiliser.drain_events()]
    assert messages[:2] == [
        "trains from step 0 on: norm, head",
        "trains from step 10 on: norm, head; blocks.2",
    ]


def test_layers_may_be_named_from_the_top_and_the_rest_comes_last():
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(4)))
    stabiliser = prepared(model, 10, layers=["3", "1"], hold=0.2, complete=0.6)
    assert [stabiliser.open_at(step) for step in range(10)] == [1, 1, 2, 2, 3, 3, 3, 3, 3, 3]
    assert prepared(model, 10, top=9).open_at(0) == 4


def test_the_number_of_steps_must_be_known():
    with pytest.raises(ConfigError, match=r"steps: the run does not know how many it has; set it"):
        prepared(nn.Linear(1, 1), None)
    assert prepared(nn.Linear(1, 1), None, steps=5).open_at(4) == 1


def test_frozen_layers_keep_weights_and_have_no_optimizer_state(tmp_path):
    given = {"gradual_unfreezing": {"hold": 1.0, "complete": 1.0}}
    with CheckpointStore(tmp_path) as store:
        records, run, _ = foreign("own order", given, store=store)
    names = {id(p): name for name, p in run.trained.model.named_parameters()}
    held = {names[id(p)] for p in run.trained.optimizers[0].state}
    assert held == {"norm.weight", "norm.bias", "head.weight", "head.bias"}
    # A checkpoint does not know of it: a replay without it trains everything.
    fork = Fork(checkpoints=tmp_path, step=3, records=records[:3])
    _, free, _ = foreign("own order", fork=fork)
    assert len(free.trained.optimizers[0].state) == len(names)


def test_a_new_head_that_throws_a_training_over_does_not_any_more(saves):
    saves("gradual_unfreezing", hold=0.5)
