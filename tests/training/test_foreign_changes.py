"""An intervention in a loop that is not ours is the same loop with that one change written in."""

from __future__ import annotations

import dataclasses
from functools import partial

import pytest
import torch
from interventions.foreign_loops import CLIP, LOOPS, SAMPLES, Bare, Hand, same, state_of
from torch.nn.utils import clip_grad

from stabexp.errors import TrainingError
from stabexp.interventions import INTERVENTIONS, build
from stabexp.state import CheckpointStore
from stabexp.state.random_streams import seed_everything
from stabexp.training import Fork, Run, execute
from stabexp.training.execute import prepare
from stabexp.training.settings import Program, RunSettings

STEPS, FORK = 6, 3

# A loop whose first updates are left out steps its schedule first.
pytestmark = pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")

TORCH = {
    "autocast": torch.autocast.__enter__,
    "clip": [cell.cell_contents for cell in clip_grad._clip_grads_with_norm_.__closure__],
}


def settings():
    return RunSettings(
        name="foreign", steps=STEPS, checkpoint_every=FORK, detectors={"non_finite": None}
    )


def watched(loop, changes=(), *, fork=None, store=None, hand=None):
    """Return the records of a loop under a run, what it trained, and the run."""
    records = []
    run = Run(
        settings(),
        fork=fork,
        interventions=build(dict(changes)),
        keep_saving=store is not None,
        checkpoints=store,
        on_step=records.append,
    )
    train = partial(LOOPS[loop][0], hand=hand or Hand())
    execute(Program(settings=run.settings, train=train), run)
    assert run.divergence is None
    assert_clean(run.trained)
    return records, run


def by_hand(loop, hand):
    """Return the losses per update of a loop without stabexp, and what it trained."""
    train, accumulate = LOOPS[loop]
    bare = Bare(hand, steps=STEPS, accumulate=accumulate)
    prepare(settings())
    seed_everything(0)
    train(bare, hand)
    losses = torch.tensor(bare.losses).reshape(-1, accumulate)
    return losses.mean(1).tolist(), bare.trained


def assert_clean(trained):
    """Nothing of ours is left in the loop's objects or in torch."""
    assert torch.autocast.__enter__ is TORCH["autocast"]
    cells = [cell.cell_contents for cell in clip_grad._clip_grads_with_norm_.__closure__]
    assert cells == TORCH["clip"]
    for optimizer, (groups, holder) in zip(trained.optimizers, trained.groups, strict=True):
        assert optimizer.param_groups is holder
        assert all(now is then for now, then in zip(optimizer.param_groups, groups, strict=True))
        assert not optimizer._optimizer_step_pre_hooks
        assert not optimizer._optimizer_step_post_hooks
    for module in trained.model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
    assert "step" not in vars(trained.scaler or trained)


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Return each loop's recorded run and its checkpoints."""
    made = {}
    for loop in LOOPS:
        with CheckpointStore(tmp_path_factory.mktemp("checkpoints")) as store:
            records, run = watched(loop, store=store)
        made[loop] = records, run, store.directory
    return made


def fork_of(original, step=FORK):
    records, _, directory = original
    return Fork(checkpoints=directory, step=step, records=records[:step])


class Broken(Exception):
    """What the loop meets."""


@pytest.mark.parametrize("place", ["batch", "update", "clipping"])
@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_that_raises_gets_its_objects_back(originals, loop, place):
    own_hooks = []

    class Raising(Hand):
        def begins(self, model, step):
            self.fail("batch", step)
            super().begins(model, step)

        def clipping(self, parameters, own, step):
            self.fail("clipping", step)
            super().clipping(parameters, own, step)

        def update(self, optimizer, step, call):
            def raising(*_):
                self.fail("update", step)

            if step == 4:  # called after ours has put the changes in force
                own_hooks.append(optimizer.register_step_pre_hook(raising))
            super().update(optimizer, step, call)

        def fail(self, where, step):
            if where == place and step == 4:
                raise Broken

    changes = {"learning_rate": 0.5, "gradient_scale": 0.5, "clip_norm": 0.1, "precision": "fp32"}
    run = Run(settings(), fork=fork_of(originals[loop]), interventions=build(changes))
    train = partial(LOOPS[loop][0], hand=Raising())
    with pytest.raises(TrainingError, match="at step 4: Broken") as caught:
        execute(Program(settings=run.settings, train=train), run)
    assert isinstance(caught.value.__cause__, Broken)
    for hook in own_hooks:
        hook.remove()
    assert_clean(run.trained)


OWN_FORMAT = {"own autocast": "bf16", "own scaler": "fp16"}
NOTHING = {
    "learning_rate": 1.0,
    "warmup": 1,
    "clip_norm": 1e9,
    "batch_size": 1,
    "shuffle": 0,
    "replace_samples": "none of those that come",
    "layer_rate": "*=1",
    "weight_decay": 1.0,
    "gradient_scale": 1.0,
    "optimizer_state": "kept",
    "init_scale": 0.5,
    "usual_init": "on",
    "safe_operation": "log,sqrt,div",
    "eager": "on",
    "skip_updates": "99",
    "loss_clamp": 1e9,
}
"""Doses without effect in a fork from step 3."""


def test_a_loop_of_ones_own_is_the_same_with_and_without_us(originals):
    for loop, (records, run, _) in originals.items():
        losses, trained = by_hand(loop, Hand())
        assert [record.loss for record in records] == losses, loop
        assert same(state_of(trained), state_of(run.trained)) == "", loop


def bare_of(records):
    """Return records without what a clock says."""
    return [dataclasses.replace(record, time=0.0, seconds=0.0) for record in records]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("variable", [*NOTHING, "own clip", "own precision", "everything"])
def test_a_dose_of_nothing_is_the_control(originals, loop, variable):
    clips = CLIP if loop != "own order" else 1e9
    extra = {
        "own clip": {"clip_norm": clips},
        "own precision": {"precision": OWN_FORMAT.get(loop, "fp32")},
        "everything": NOTHING,
    }
    changes = extra.get(variable) or {variable: NOTHING[variable]}
    original, whole, _ = originals[loop]
    if "replace_samples" in changes:
        shown = {i for record in original for i in record.sample_ids}
        changes = {**changes, "replace_samples": str(min(set(range(SAMPLES)) - shown))}
    records, run = watched(loop, changes, fork=fork_of(originals[loop]))
    assert bare_of(records) == bare_of(original[FORK:])
    assert same(state_of(run.trained), state_of(whole.trained)) == ""


SHOWN = ((3, 8), (17,), (5,), (9, 1), (2,), (4,))
"""Enough for the whole replay."""
REAL = [
    ("learning_rate", 0.5, Hand(rate=lambda step: 0.5)),
    ("learning_rate", 0.0, Hand(rate=lambda step: 0.0)),
    ("warmup", 8, Hand(rate=lambda step: (step + 1) / 8)),
    ("clip_norm", 0.1, Hand(clip=0.1)),
    ("precision", "fp32", Hand(autocast=None)),
    ("precision", "bf16", Hand(autocast=torch.bfloat16)),
    ("precision", "fp16", Hand(autocast=torch.float16)),
    ("batch_size", 2, Hand(join=2)),
    ("replace_samples", "all", Hand()),
    ("show_samples", "3+8,17,5,9+1,2,4", Hand(first=SHOWN)),
    ("frozen_scan", "3+8,17,5,9+1,2,4", Hand(first=SHOWN, skip=frozenset(range(STEPS)))),
    ("hold_rate", "on", Hand(hold=True)),
    ("layer_rate", "head=0.5", Hand(head=0.5)),
    ("layer_rate", "head=0", Hand(head=0.0)),
    ("weight_decay", 3.0, Hand(decay=3.0)),
    ("gradient_scale", 0.25, Hand(gradient=0.25)),
    ("adam_eps", 0.01, Hand(options={"eps": 0.01})),
    ("betas", "0.5,0.9", Hand(options={"betas": (0.5, 0.9)})),
    ("optimizer_state", "fresh", Hand(forget=True)),
    ("skip_updates", "4-5", Hand(skip=frozenset({4, 5}))),
    ("loss_clamp", "median", Hand()),
    ("exact_modules", "head", Hand(exact=True)),
    ("standardise_inputs", "on", Hand(standard=True)),
]
ELSEWHERE = {"shuffle", "init_scale", "usual_init", "safe_operation", "eager"}
"""Proved where they act: tests/interventions, and below from step 0."""


def test_every_intervention_is_in_the_tables():
    assert {name for name, _, _ in REAL} | set(NOTHING) == set(INTERVENTIONS)
    assert set(NOTHING) - {name for name, _, _ in REAL} == ELSEWHERE


def fits(loop, variable):
    """Whether a change can act in this loop."""
    if variable in {"precision", "exact_modules"}:
        return loop in OWN_FORMAT
    return variable not in {"adam_eps", "betas"} or loop in {"own autocast", "own order"}


@pytest.mark.parametrize(
    ("loop", "variable", "dose", "hand"),
    [(loop, *row) for loop in LOOPS for row in REAL if fits(loop, row[0])],
)
def test_a_dose_is_the_loop_with_that_change_written_in(originals, loop, variable, dose, hand):
    original, whole, _ = originals[loop]
    hand = dataclasses.replace(hand, since=FORK, held={})
    if variable == "replace_samples":
        ids = original[4].sample_ids[:2]
        dose = ",".join(map(str, ids))
        kept = [i for i in range(SAMPLES) if i not in ids]
        hand.replace = {i: min((k for k in kept if k > i), default=kept[0]) for i in ids}
    if variable == "loss_clamp":
        dose = hand.clamp = sorted(record.loss for record in original[FORK:])[1]
    losses, trained = by_hand(loop, hand)
    records, run = watched(loop, {variable: dose}, fork=fork_of(originals[loop]))
    assert [record.loss for record in records] == losses[FORK:]
    assert same(state_of(trained), state_of(run.trained)) == ""
    same_as_own = {("own autocast", "bf16"), ("own scaler", "fp16")}
    if (loop, dose) not in same_as_own:
        assert same(state_of(trained)["model"], state_of(whole.trained)["model"]) != ""


@pytest.mark.parametrize("loop", LOOPS)
def test_weights_scaled_at_the_start_are_the_loop_that_starts_so(loop):
    losses, trained = by_hand(loop, Hand(shrink=0.5))
    records, run = watched(loop, {"init_scale": 0.5})
    assert [record.loss for record in records] == losses
    assert same(state_of(trained), state_of(run.trained)) == ""
