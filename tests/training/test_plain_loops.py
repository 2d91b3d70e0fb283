"""A loop's own autocast and clipping are seen and can be changed; what cannot be is refused."""

from __future__ import annotations

import pytest
import torch
from recording import record
from torch import nn, optim
from torch.nn.utils import clip_grad_norm_ as clipped_under_another_name
from torch.utils.data import DataLoader, WeightedRandomSampler
from training.feed_worlds import WEIGHTS, Augmented, network, table

from stabexp.bisection.replay import first_mismatch
from stabexp.errors import NotReplayableError
from stabexp.interventions import build

STEPS = 10


def loader():
    return DataLoader(Augmented(), 8, sampler=WeightedRandomSampler(WEIGHTS, 60))


def clipped_by_hand(parameters, limit):
    """Clip with torch's two halves of clipping."""
    parameters = list(parameters)
    total = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    nn.utils.clip_grads_with_norm_(parameters, limit, total)


CLIPPING = {
    "torch.nn.utils": nn.utils.clip_grad_norm_,
    "imported by name": clipped_under_another_name,
    "in two halves": clipped_by_hand,
    "foreach": lambda p, limit: nn.utils.clip_grad_norm_(p, limit, foreach=True),
    "one by one": lambda p, limit: nn.utils.clip_grad_norm_(p, limit, foreach=False),
    "none": lambda p, limit: None,
}


def loop(clip=lambda p, limit: None, limit=0.3, dtype=None):
    """Return a training that clips and casts by itself."""

    def train(run):
        model = network()
        optimizer = optim.SGD(model.parameters(), 1e-2, momentum=0.9)
        for x, y in run.steps(loader(), model=model, optimizer=optimizer):
            optimizer.zero_grad()
            if dtype is None:
                loss = nn.functional.mse_loss(model(x), y)
            else:
                with torch.autocast("cpu", dtype):
                    out = model(x)
                loss = nn.functional.mse_loss(out.float(), y)
            run.log(loss)
            loss.backward()
            clip(model.parameters(), limit)
            optimizer.step()

    return train


@pytest.mark.parametrize("way", CLIPPING)
def test_the_norm_before_clipping_is_recorded_however_a_loop_clips(tmp_path, way):
    made = record(loop(CLIPPING[way]), tmp_path / "a", steps=STEPS)
    free = record(loop(), tmp_path / "b", steps=STEPS)
    assert made.records[0].grad_norm == free.records[0].grad_norm
    norms = [record.grad_norm for record in made.records]
    assert max(norms) > 0.3
    expected = [1.0 if way == "none" else min(1.0, 0.3 / (norm + 1e-6)) for norm in norms]
    assert [record.clip_coefficient for record in made.records] == pytest.approx(expected)
    assert made.run.seen()["clip_norm"] == (None if way == "none" else 0.3)


@pytest.mark.parametrize("way", [way for way in CLIPPING if way != "none"])
def test_another_limit_is_the_loop_with_that_limit(tmp_path, way):
    made = record(loop(CLIPPING[way]), tmp_path / "a", steps=STEPS)
    same = made.replay(0, interventions=build({"clip_norm": 0.3}))
    assert first_mismatch(made.records, same) == (None, "")
    other = record(loop(CLIPPING[way], limit=0.1), tmp_path / "b", steps=STEPS)
    lower = made.replay(0, interventions=build({"clip_norm": 0.1}))
    assert first_mismatch(other.records, lower) == (None, "")
    assert first_mismatch(made.records, lower) != (None, "")


@pytest.mark.parametrize("way", ["torch.nn.utils", "in two halves"])
def test_clipping_where_a_loop_clips_nothing_is_the_loop_that_clips(tmp_path, way):
    """`clip_norm` in a loop without clipping is the same arithmetic as torch's own."""
    made = record(loop(), tmp_path / "a", steps=STEPS)
    clips = record(loop(CLIPPING[way]), tmp_path / "b", steps=STEPS)
    again = made.replay(0, interventions=build({"clip_norm": 0.3}))
    assert first_mismatch(clips.records, again) == (None, "")


@pytest.mark.parametrize(
    ("own", "asked", "instead"),
    [
        pytest.param(torch.bfloat16, "fp32", None, id="bf16 in fp32"),
        pytest.param(torch.float16, "fp32", None, id="fp16 in fp32"),
        pytest.param(torch.float16, "bf16", torch.bfloat16, id="fp16 in bf16"),
    ],
)
def test_another_precision_is_the_loop_in_that_precision(tmp_path, own, asked, instead):
    made = record(loop(dtype=own), tmp_path / "a", steps=STEPS)
    other = record(loop(dtype=instead), tmp_path / "b", steps=STEPS)
    again = made.replay(0, interventions=build({"precision": asked}))
    assert first_mismatch(other.records, again) == (None, "")
    assert first_mismatch(made.records, again) != (None, "")
    later = made.replay(4, interventions=build({"precision": asked}))
    assert later[0].loss != made.records[4].loss


def steps(run, **given):
    """Return the beginning of a loop whose parts can be replaced."""
    model = given.pop("model", None) or network()
    given.setdefault("optimizer", optim.SGD(model.parameters(), 1e-2))
    return model, run.steps(given.pop("data", table()), model=model, **given)


def simply(**change):
    def train(run):
        _, batches = steps(run, **{name: make() for name, make in change.items()})
        for _ in batches:
            raise AssertionError("not refused")

    return train


def adding_a_module(run):
    model, batches = steps(run)
    for x, y in batches:
        if run.step == 2:
            model.append(nn.Linear(1, 1))
        run.log(loss := nn.functional.mse_loss(model(x), y))
        loss.backward()
        run.parts.optimizers[0].step()


def stepping_with_a_closure(run):
    model, batches = steps(run)
    for x, y in batches:
        run.log(loss := nn.functional.mse_loss(model(x), y))
        run.parts.optimizers[0].step(lambda loss=loss: loss.backward())


def sparse(run):
    model = nn.Embedding(9, 3, sparse=True)
    optimizer = optim.SparseAdam(model.parameters())
    _, batches = steps(run, model=model, optimizer=optimizer)
    for _ in batches:
        run.log(loss := model(torch.tensor([1, 2])).sum())
        loss.backward()
        optimizer.step()


def made_a_scaler(run):
    run.scaler()
    steps(run)


class Odd:
    """Remembers a function."""

    def state_dict(self):
        return {"callback": lambda: 0}

    def load_state_dict(self, state):
        raise AssertionError(state)


REFUSALS = {
    "LBFGS": (
        lambda run: steps(run, optimizer=optim.LBFGS(network().parameters())),
        "optimizer is an LBFGS, .*; use an optimizer that is stepped without a closure",
    ),
    "closure": (stepping_with_a_closure, "SGD.step was given a closure, .*; use an optimizer that"),
    "sparse gradients": (sparse, "a gradient is sparse, .*; build the embedding with sparse=False"),
    "no torch optimizer": (
        simply(optimizer=Odd),
        "optimizer is a Odd, not a torch optimizer; pass the torch.optim.Optimizer that makes",
    ),
    "no module": (
        lambda run: run.steps(table(), model=print, optimizer=None),
        "model is a builtin_function_or_method, not a torch.nn.Module",
    ),
    "name taken": (
        simply(extra=lambda: {"scaler": network()}),
        r"extra\['scaler'\] has the name of a part; give it another name",
    ),
    "no state": (
        simply(extra=lambda: {"seen": {3}}),
        r"seen: a set has no state_dict\(\) and load_state_dict\(\); add both",
    ),
    "a state that cannot be saved": (
        simply(extra=lambda: {"odd": Odd()}),
        r"odd\['callback'\]: a builtins.function cannot be saved and put back exactly; give",
    ),
    "two loops": (lambda run: (steps(run), steps(run)), "run.steps was called twice; one run is"),
    "scaler kept": (made_a_scaler, r"run.scaler\(\) made a scaler, .*; pass scaler="),
    "samples that are no samples": (
        simply(data=lambda: iter([])),
        "a list_iterator can be read only once, .*; pass a dataset, a DataLoader, or an object",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_replayed_is_refused_with_place_and_remedy(tmp_path, name):
    train, message = REFUSALS[name]
    with pytest.raises(NotReplayableError, match=message):
        record(train, tmp_path, steps=4, batch_size=8, precision="fp16")


def test_a_module_made_inside_the_loop_cannot_be_put_back(tmp_path):
    made = record(adding_a_module, tmp_path, steps=6, batch_size=8)
    for step in (0, 2):
        assert first_mismatch(made.records, made.replay(step)) == (None, "")
    with pytest.raises(
        NotReplayableError,
        match=r"model: the checkpoint has the module '5', .* not made when it calls run.steps, .*; "
        r"make it before the loop and freeze it until it is needed, or replay from a checkpoint",
    ):
        made.replay(3)
