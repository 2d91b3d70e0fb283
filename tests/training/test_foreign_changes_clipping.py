"""However a loop clips by norm, what it clips is measured before, and it clips as without us."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from interventions.foreign_loops import Bare, Hand, Net, loader, same
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm

from stabexp.interventions import build
from stabexp.training import Run, RunSettings, execute
from stabexp.training.execute import prepare
from stabexp.training.settings import Program

STEPS = 4


def whole(model, limit):
    clip_grad_norm_(model.parameters(), limit)


def imported_late(model, limit):
    from torch.nn.utils.clip_grad import clip_grad_norm_ as late

    late(list(model.parameters()), limit)


def by_attribute(model, limit):
    torch.nn.utils.clip_grad_norm_(model.parameters(), limit, foreach=False)


def known_norm(model, limit):
    total = get_total_norm([p.grad for p in model.parameters()])
    clip_grads_with_norm_(model.parameters(), limit, total)


def by_group(model, limit):
    for part in (model.encoder, model.norm, model.head):
        clip_grad_norm_(part.parameters(), limit)


def by_parameter(model, limit):
    for parameter in model.parameters():
        clip_grad_norm_(parameter, limit)


def head_only(model, limit):
    clip_grad_norm_(model.head.parameters(), limit)


def whole_and_head(model, limit):
    clip_grad_norm_(model.parameters(), limit)
    clip_grad_norm_(model.head.parameters(), limit / 2)


def largest_element(model, limit):
    clip_grad_norm_(model.parameters(), limit, norm_type=math.inf)


def sum_of_elements(model, limit):
    clip_grad_norm_(model.parameters(), limit, norm_type=1.0)


WAYS = [
    whole,
    imported_late,
    by_attribute,
    known_norm,
    by_group,
    by_parameter,
    head_only,
    whole_and_head,
    largest_element,
    sum_of_elements,
]


def taken(model):
    return [p.grad.clone() for p in model.parameters()]


def loop(run, *, clip, limit, accumulate=1, every_batch=False, damage=None, scale=None, then=None):
    """Keep every update's gradients before clipping and as the optimizer gets them.

    Args:
        clip: (model, limit) → None.
        every_batch: Whether it clips after each backward pass.
        damage: What to put into one gradient of step 2.
        scale: Loss scale; the loop then clips what is still scaled, a fault of its own.
        then: What a loop does on its own behalf once all is unscaled.
    """
    torch.manual_seed(3)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale) if scale else None
    run.kept = []
    before = []
    optimizer.register_step_post_hook(lambda *_: run.kept.append((before, taken(model))))
    steps = run.steps(loader(), model=model, optimizer=optimizer, scaler=scaler)
    for index, (x, y) in enumerate(steps, start=1):
        loss = functional.cross_entropy(model(x), y)
        run.log(loss)
        (scaler.scale(loss) if scaler else loss).backward()
        if damage is not None and run.step == 2:
            model.head.weight.grad[0, 0] = damage
        if every_batch or index % accumulate == 0:
            before = [g / (scale or 1.0) for g in taken(model)]
            clip(model, limit)
        if index % accumulate:
            continue
        if scaler:
            scaler.unscale_(optimizer)
        if then:
            then(model)
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        optimizer.zero_grad()


def both(changes=(), *, accumulate=1, bare_clip=None, **options):
    """Return the records and kept gradients of a watched loop, and those of a bare one."""
    records = []
    settings = RunSettings(name="clipping", steps=STEPS, detectors={"oscillation": None})
    run = Run(settings, interventions=build(dict(changes)), on_step=records.append)
    train = partial(loop, accumulate=accumulate, **options)
    execute(Program(settings=settings, train=train), run)
    bare = Bare(Hand(), steps=STEPS, accumulate=accumulate)
    prepare(settings)
    torch.manual_seed(0)
    loop(bare, accumulate=accumulate, **(options | (bare_clip or {})))
    return records, run.kept, bare.kept


def assert_measured(records, kept):
    """The records say what an obvious computation over the kept gradients says."""
    for record, (before, after) in zip(records, kept, strict=True):
        norm = math.sqrt(sum(float(g.double().square().sum()) for g in before))
        factors = [
            float(g.double().norm() / own.double().norm())
            for own, g in zip(before, after, strict=True)
        ]
        assert record.grad_norm == pytest.approx(norm, rel=1e-5)
        assert record.clip_coefficient == pytest.approx(min(factors), rel=1e-5)


@pytest.mark.parametrize("clip", WAYS)
@pytest.mark.parametrize("limit", [0.2, 1e9])
def test_norm_and_factor_are_right_and_the_gradients_untouched(clip, limit):
    records, ours, bare = both(clip=clip, limit=limit)
    assert same(ours, bare) == ""
    assert_measured(records, ours)
    assert any(record.clip_coefficient < 0.99 for record in records) == (limit == 0.2)


@pytest.mark.parametrize("every_batch", [False, True])
def test_the_gradients_of_the_last_batch_count_where_each_is_clipped(every_batch):
    records, ours, bare = both(clip=whole, limit=0.2, accumulate=3, every_batch=every_batch)
    assert same(ours, bare) == ""
    assert_measured(records, ours)


@pytest.mark.parametrize("damage", [math.inf, math.nan])
@pytest.mark.parametrize("clip", [whole, by_group, known_norm])
def test_a_norm_that_is_not_finite_ruins_the_gradients_as_it_does_without_us(clip, damage):
    records, ours, bare = both(clip=clip, limit=0.2, damage=damage)
    assert same(ours, bare) == ""
    broken = records[2]
    assert not math.isfinite(broken.grad_norm)
    assert broken.nonfinite_grads == 1
    # torch multiplies by limit / inf, which is 0, or by NaN.
    assert (
        math.isnan(broken.clip_coefficient) if math.isnan(damage) else not broken.clip_coefficient
    )


def test_clipping_of_what_is_still_scaled_shows_as_a_tiny_factor():
    records, ours, bare = both(clip=whole, limit=0.2, scale=1024.0)
    assert same(ours, bare) == ""
    assert_measured(records, ours)
    assert all(record.clip_coefficient < 0.01 for record in records)
    assert all(record.grad_norm > 0.1 for record in records)


def test_clipping_by_value_is_not_seen_and_the_norm_is_the_one_after_it():
    def by_value(model, limit):
        clip_grad_value_(model.parameters(), limit)

    records, ours, bare = both(clip=by_value, limit=0.01)
    assert same(ours, bare) == ""
    for record, (_, after) in zip(records, ours, strict=True):
        norm = math.sqrt(sum(float(g.double().square().sum()) for g in after))
        assert record.grad_norm == pytest.approx(norm, rel=1e-5)
        assert record.clip_coefficient == 1.0


@pytest.mark.parametrize("clip", [way for way in WAYS if way is not head_only])
def test_a_dose_is_the_loops_own_clipping_at_that_norm(clip):
    if clip is whole_and_head:  # the second limit is half the first

        def tighter(model, limit):
            clip_grad_norm_(model.parameters(), limit)
            clip_grad_norm_(model.head.parameters(), min(0.5 / 2, limit))

        change = {"clip": tighter, "limit": 0.1}
    else:
        change = {"limit": 0.1}
    records, ours, bare = both({"clip_norm": 0.1}, clip=clip, limit=0.5, bare_clip=change)
    assert same([after for _, after in ours], [after for _, after in bare]) == ""
    assert any(record.clip_coefficient < 0.9 for record in records)


def rest_of(limit, *names):
    def then(model):
        chosen = [p for name, p in model.named_parameters() if not name.startswith(names)]
        clip_grad_norm_(chosen, limit)

    return then


def test_what_the_loop_leaves_unclipped_is_clipped_together():
    _, ours, bare = both(
        {"clip_norm": 0.1},
        clip=head_only,
        limit=0.5,
        bare_clip={"limit": 0.1, "then": rest_of(0.1, "head")},
    )
    assert same([after for _, after in ours], [after for _, after in bare]) == ""


def test_a_dose_comes_on_top_of_clipping_that_was_still_scaled():
    _, ours, bare = both(
        {"clip_norm": 1e-5},
        clip=whole,
        limit=0.2,
        scale=1024.0,
        bare_clip={"then": lambda model: clip_grad_norm_(model.parameters(), 1e-5)},
    )
    assert same([after for _, after in ours], [after for _, after in bare]) == ""
