"""A restored training goes on exactly as the original did."""

from __future__ import annotations

import pytest
import torch

from stabexp.errors import CheckpointError
from stabexp.state import CheckpointStore, capture, first_difference, restore, state_hash

PAIRS = [
    *[(optimizer, "none") for optimizer in ("sgd", "adam", "adamw", "adamw tensor rate")],
    *[("adafactor", "none"), ("rmsprop", "lambda"), ("momentum", "lambda")],
    *[("adamw foreach", "one cycle"), ("adamw fused", "plateau")],
    *[("momentum", "sequential"), ("adam", "cosine restarts"), ("sgd", "plateau")],
]


@pytest.mark.parametrize(("optimizer", "scheduler"), PAIRS)
def test_fresh_objects_go_on_bit_for_bit_twice_from_one_snapshot(make_world, optimizer, scheduler):
    world = make_world(optimizer, scheduler)
    world.train(5)
    snapshot = world.capture(step=5)
    before = state_hash(snapshot)
    expected = world.train(6)
    final = world.capture(step=5)
    for seed in (1, 2):
        fork = make_world(optimizer, scheduler, seed=seed)
        fork.restore(snapshot)
        assert first_difference(snapshot, fork.capture(step=5)) is None
        assert fork.train(6) == expected
        assert first_difference(final, fork.capture(step=5)) is None
    assert state_hash(snapshot) == before


@pytest.mark.parametrize(("optimizer", "scheduler"), PAIRS[-4:])
def test_the_same_objects_can_be_rolled_back(make_world, optimizer, scheduler):
    world = make_world(optimizer, scheduler)
    world.train(3)
    snapshot = world.capture()
    expected = world.train(4)
    for _ in range(2):
        world.restore(snapshot)
        assert world.train(4) == expected


def test_rolls_back_to_before_the_first_step(make_world):
    world = make_world("adam")
    snapshot = world.capture()
    expected = world.train(3)
    world.restore(snapshot)
    assert world.train(3) == expected
    fork = make_world("adam", seed=8)
    fork.train(2)
    fork.restore(snapshot)
    assert fork.train(3) == expected


@pytest.mark.parametrize(
    "omitted", ["model", "optimizer", "scheduler", "average", "order", "numbers", "streams"]
)
def test_leaving_out_one_part_shows_in_the_parameters(make_world, omitted):
    world = make_world("adam", "one cycle")
    world.train(5)
    snapshot = world.capture()
    expected = world.train(4)
    fork = make_world("adam", "one cycle", seed=3)
    fork.train(2)
    streams = capture({})
    fork.restore(snapshot)
    other = make_world("adam", "one cycle", seed=3)
    if omitted == "streams":
        restore(streams, {})
    else:
        fresh = capture({omitted: other.objects[omitted]})
        restore(fresh, {omitted: fork.objects[omitted]})
    if omitted != "streams":
        torch.random.set_rng_state(snapshot.streams["torch"])
    assert fork.train(4) != expected


def test_gradients_that_are_never_cleared_are_state(make_world):
    world = make_world("sgd", clear=False)
    world.train(4)
    snapshot = world.capture()
    without = capture(world.objects, gradients=False)
    expected = world.train(4)
    fork = make_world("sgd", clear=False, seed=1)
    fork.restore(snapshot)
    assert fork.train(4) == expected
    fork = make_world("sgd", clear=False, seed=1)
    fork.restore(without)
    assert fork.train(4) != expected


def test_a_new_process_goes_on_from_a_file(make_world, python, world_script, tmp_path):
    kinds = ("adamw foreach", "sequential")
    world = make_world(*kinds)
    world.train(5)
    with CheckpointStore(tmp_path / "checkpoints") as store:
        store.save(5, world.capture(), finite=True)
    expected = world.train(6)
    process = python(world_script, tmp_path / "checkpoints", 5, 6, *kinds)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert [int(number) for number in output.split()] == expected


def test_sparse_gradients_and_lbfgs_and_numpy_state_go_on_exactly():
    def build():
        table = torch.nn.Embedding(9, 3, sparse=True)
        line = torch.nn.Linear(3, 1)
        return (
            {
                "table": table,
                "line": line,
                "sparse": torch.optim.SparseAdam(table.parameters(), lr=0.1),
                "lbfgs": torch.optim.LBFGS(line.parameters(), lr=0.1, max_iter=3),
            },
            table,
            line,
        )

    def train(objects, table, line):
        losses = []
        for step in range(4):
            index = torch.tensor([step % 9, 2, 2])

            def closure(index=index):
                for part in (table, line):
                    part.zero_grad()
                loss = line(table(index)).pow(2).sum()
                loss.backward()
                return loss

            losses.append(objects["lbfgs"].step(closure).item())
            objects["sparse"].step()
        return losses

    torch.manual_seed(0)
    objects, *parts = build()
    train(objects, *parts)
    snapshot = capture(objects)
    expected = train(objects, *parts)
    for _ in range(2):
        objects, *parts = build()
        restore(snapshot, objects)
        assert train(objects, *parts) == expected


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("options", [{}, {"fused": True}, {"capturable": True}])
def test_goes_on_exactly_on_a_gpu(options):
    def build(seed):
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5)).cuda()
        return model, torch.optim.AdamW(model.parameters(), **options)

    def train(model, optimizer):
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(4, 8, device="cuda")).pow(2).sum().backward()
            optimizer.step()
        return state_hash(capture({"model": model, "optimizer": optimizer}))

    model, optimizer = build(0)
    train(model, optimizer)
    snapshot = capture({"model": model, "optimizer": optimizer})
    assert all(not leaf.is_cuda for leaf in snapshot.streams["cuda"])
    expected = train(model, optimizer)
    model, optimizer = build(1)
    restore(snapshot, {"model": model, "optimizer": optimizer})
    assert train(model, optimizer) == expected


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_a_gpu_run_is_not_silently_replayed_without_its_gpu(make_world):
    world = make_world()
    snapshot = world.capture()
    snapshot.streams["cuda"] = [snapshot.streams["torch"]]
    before = world.digest()
    with pytest.raises(CheckpointError, match=r"those of 1 CUDA device\(s\), 0 are visible"):
        world.restore(snapshot)
    assert world.digest() == before
