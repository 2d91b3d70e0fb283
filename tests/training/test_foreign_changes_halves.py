"""A model that its loop built in half precision is replayed in float32 as if written so there."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from interventions.foreign_loops import Bare, Hand, Trained, loader, same, state_of
from torch import nn
from torch.nn import functional

from stabexp.errors import NotReplayableError
from stabexp.interventions import build
from stabexp.state import CheckpointStore
from stabexp.state.random_streams import seed_everything
from stabexp.training import Fork, Run, RunSettings, execute
from stabexp.training.changes_format import WeightFormat
from stabexp.training.execute import prepare
from stabexp.training.settings import Program

STEPS, FORK = 6, 3


class Normed(nn.Module):
    """Batch norm, whose running statistics are buffers."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, x):
        return self.layers(x)


class Tied(nn.Module):
    """Integer inputs, and one matrix under two names."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.mix = nn.Linear(8, 8)
        self.out = nn.Linear(8, 10, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, x):
        ids = x.float().abs().long().clamp(max=9)
        return self.out(self.mix(self.embed(ids).mean(1)))


class TiedByMemory(Tied):
    """Two parameters over the same memory."""

    def __init__(self):
        super().__init__()
        self.out.weight = nn.Parameter(self.embed.weight.data)


class Images(nn.Module):
    """Convolutions in channels-last memory."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 2)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(8, 3)
        self.to(memory_format=torch.channels_last)

    def forward(self, x):
        images = x.reshape(-1, 2, 1, 3).repeat(1, 1, 2, 1)
        images = images.contiguous(memory_format=torch.channels_last)
        return self.head(self.norm(self.conv(images)).flatten(1))


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cell = kind(2, 5, num_layers=2, batch_first=True)
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.cell(x.reshape(-1, 3, 2))[0][:, -1])


class NormsKept(Normed):
    """Half weights around a norm that stays float32, as is often done."""

    def to_half(self, dtype):
        self.to(dtype)
        self.layers[1].float()

    def forward(self, x):
        first, norm, *rest = self.layers
        hidden = norm(first(x).float())
        return nn.Sequential(*rest)(hidden.to(rest[-1].weight.dtype))


MODELS = {
    "batch norm": Normed,
    "tied": Tied,
    "tied by memory": TiedByMemory,
    "channels last": Images,
    "LSTM": partial(Recurrent, nn.LSTM),
    "GRU": partial(Recurrent, nn.GRU),
    "norms kept": NormsKept,
}


def to_half(model, dtype):
    model.to_half(dtype) if hasattr(model, "to_half") else model.to(dtype)
    if isinstance(model, TiedByMemory):
        model.out.weight.data = model.embed.weight.data


def to_other(model, optimizer, dtype):
    to_half(model, dtype) if dtype != torch.float32 else model.float()
    if isinstance(model, TiedByMemory):
        model.out.weight.data = model.embed.weight.data
    for state in optimizer.state.values():
        state.update({key: v.to(dtype) for key, v in state.items() if key != "step"})


def loop(run, *, make, dtype, other_from=None, other=torch.float32, compiled=False):
    """A loop that holds weights, moments and inputs in one format, from a step on in another."""
    torch.manual_seed(3)
    model = make()
    to_half(model, dtype)
    called = torch.compile(model, backend="eager") if compiled else model
    optimizer = torch.optim.Adam(model.parameters(), 0.01, eps=1e-4)
    run.trained = Trained(model=model, optimizers=[optimizer], schedules=[])
    run.dtypes = []
    for x, y in run.steps(loader(), model=called, optimizer=optimizer):
        if run.step == other_from:
            to_other(model, optimizer, other)
        inputs = x.to(dtype)  # what the loop casts is cast in the replay too
        if other_from is not None and run.step >= other_from:
            inputs = inputs.to(other)
        loss = functional.cross_entropy(called(inputs).float(), y)
        run.log(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        run.dtypes.append({p.dtype for p in model.parameters()})


def watched(changes=(), *, fork=None, store=None, **options):
    settings = RunSettings(
        name="halves", steps=STEPS, checkpoint_every=FORK, detectors={"oscillation": None}
    )
    records = []
    run = Run(
        settings,
        fork=fork,
        interventions=build(dict(changes)),
        keep_saving=store is not None,
        checkpoints=store,
        on_step=records.append,
    )
    execute(Program(settings=settings, train=partial(loop, **options)), run)
    return records, run


def forked(tmp_path, changes, **options):
    """Return the recorded run, and its replay with changes."""
    with CheckpointStore(tmp_path / "checkpoints") as store:
        original = watched(store=store, **options)
    fork = Fork(checkpoints=store.directory, step=FORK)
    return original, watched(changes, fork=fork, **options)


def by_hand(**options):
    bare = Bare(Hand(), steps=STEPS, accumulate=1)
    prepare(RunSettings(name="halves"))
    seed_everything(0)
    loop(bare, **options)
    return bare


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", MODELS)
def test_a_replay_in_float32_is_the_loop_written_in_float32(tmp_path, name, dtype):
    options = {"make": MODELS[name], "dtype": dtype}
    (original, _), (records, run) = forked(tmp_path, {"precision": "fp32"}, **options)
    bare = by_hand(**options, other_from=FORK)
    assert run.precision_changed
    assert run.dtypes == [{torch.float32}] * (STEPS - FORK)
    assert [record.loss for record in records] == bare.losses[FORK:]
    assert same(state_of(run.trained), state_of(bare.trained)) == ""
    assert [record.digest for record in records] != [r.digest for r in original[FORK:]]
    strides = [
        [p.stride() for p in made.model.parameters()] for made in (run.trained, bare.trained)
    ]
    assert strides[0] == strides[1]
    memory = [
        len({p.data_ptr() for p in made.model.parameters()}) for made in (run.trained, bare.trained)
    ]
    assert memory[0] == memory[1]
    assert not any(m._forward_pre_hooks for m in run.trained.model.modules())


@pytest.mark.parametrize(
    ("precision", "other"), [("fp64", torch.float64), ("pure_bf16", torch.bfloat16)]
)
@pytest.mark.parametrize("name", ["batch norm", "tied by memory", "channels last", "LSTM"])
def test_a_float32_model_is_held_in_another_format_too(tmp_path, name, precision, other):
    options = {"make": MODELS[name], "dtype": torch.float32}
    _, (records, run) = forked(tmp_path, {"precision": precision}, **options)
    bare = by_hand(**options, other_from=FORK, other=other)
    assert [record.loss for record in records] == bare.losses[FORK:]
    assert same(state_of(run.trained), state_of(bare.trained)) == ""


def test_a_compiled_model_is_replayed_as_it_was_written(tmp_path):
    options = {"make": Normed, "dtype": torch.bfloat16}
    _, (records, run) = forked(tmp_path, {"precision": "fp32"}, **options, compiled=True)
    bare = by_hand(**options, other_from=FORK)
    assert [record.loss for record in records] == bare.losses[FORK:]
    assert same(state_of(run.trained), state_of(bare.trained)) == ""


@pytest.mark.parametrize("name", ["batch norm", "norms kept"])
def test_the_precision_a_loop_has_is_the_control(tmp_path, name):
    options = {"make": MODELS[name], "dtype": torch.bfloat16}
    (original, _), (records, run) = forked(tmp_path, {"precision": "pure_bf16"}, **options)
    assert [record.digest for record in records] == [r.digest for r in original[FORK:]]
    assert not run.precision_changed


def test_what_is_wider_than_float32_stays_and_half_weights_are_made_of_wide_ones():
    model = Normed()
    model.register_buffer("table", torch.ones(3, dtype=torch.float64))
    model.layers[0].bfloat16()
    changed = WeightFormat.of(model, torch.float32)
    assert model.table.dtype == torch.float64
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert model.layers[1].num_batches_tracked.dtype == torch.int64
    changed.remove()
    assert WeightFormat.of(model, torch.float32) is None
    changed = WeightFormat.of(model, torch.float16)
    assert {p.dtype for p in model.parameters()} == {torch.float16}
    assert model(torch.ones(4, 6)).dtype == torch.float16
    changed.remove()


def test_a_part_of_a_shared_allocation_stays_a_part_of_it():
    flat = torch.arange(12.0).half()
    model = nn.Module()
    model.first = nn.Parameter(flat[:6].view(2, 3).t())
    model.second = nn.Parameter(flat[4:])
    strides = model.first.stride()
    WeightFormat.of(model, torch.float32).remove()
    with torch.no_grad():
        model.second[0] = 100.0
    assert model.first.stride() == strides
    assert model.first.tolist() == [[0.0, 3.0], [1.0, 100.0], [2.0, 5.0]]


def test_a_weight_that_is_not_strided_is_refused():
    model = nn.Module()
    model.weight = nn.Parameter(torch.eye(3).half().to_sparse())
    with pytest.raises(NotReplayableError, match=r"precision: a weight of shape \(3, 3\) is "):
        WeightFormat.of(model, torch.float32)
