"""Snapshots keep ties, layouts, modes and dtypes, and say what does not fit."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import nn

from stabexp.errors import CheckpointError, NotReplayableError
from stabexp.state import capture, first_difference, restore, state_hash


def test_tied_parameters_stay_tied_and_are_kept_once(make_world):
    world = make_world()
    snapshot = world.capture()
    state = snapshot.objects["model"]["value"]["state"]
    assert state["first.weight"].data_ptr() == state["second.weight"].data_ptr()
    fork = make_world(seed=1)
    fork.restore(snapshot)
    assert fork.model.first.weight is fork.model.second.weight


def test_parameters_keep_their_identity_layout_and_storage(make_world):
    world, fork = make_world(), make_world(seed=1)
    world.train(2)
    before = [(p, p.data_ptr(), p.stride()) for p in fork.model.parameters()]
    fork.restore(world.capture())
    for (parameter, pointer, stride), now in zip(before, fork.model.parameters(), strict=True):
        assert now is parameter
        assert (now.data_ptr(), now.stride()) == (pointer, stride)
    assert fork.model.conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert not fork.model.strided.is_contiguous()


def test_a_snapshot_shares_no_memory_with_the_objects(make_world):
    world = make_world()
    world.train(2)
    snapshot = world.capture(order=[1, 2])
    before = state_hash(snapshot)
    with torch.no_grad():
        for tensor in [*world.model.state_dict().values(), world.model.running]:
            tensor.fill_(7)
    for state in world.optimizer.state.values():
        for tensor in state.values():
            tensor.fill_(7)
    assert state_hash(snapshot) == before


def test_modes_flags_and_unsaved_buffers_come_back(make_world):
    world = make_world()
    world.train(2)
    world.model.norm.eval()
    world.model.second.bias.requires_grad_(False)
    running = world.model.running.clone()
    snapshot = world.capture()
    fork = make_world(seed=1)
    fork.model.eval()
    fork.restore(snapshot)
    modes = {name: module.training for name, module in fork.model.named_modules()}
    assert [name for name, training in modes.items() if not training] == ["norm"]
    assert not fork.model.second.bias.requires_grad
    assert not fork.model.frozen.weight.requires_grad
    assert fork.model.first.weight.requires_grad
    assert torch.equal(fork.model.running, running)


class Cache(nn.Module):
    """Keeps a buffer that appears, grows, and may be None, as position caches do."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("cache", None, persistent=False)
        self.register_buffer("constant", torch.zeros(1).expand(4), persistent=False)

    def grow(self, size: int) -> None:
        self.cache = torch.arange(float(size))


def test_buffers_that_appear_and_grow_are_put_back_as_they_were():
    model = Cache()
    empty = capture({"model": model})
    model.grow(3)
    model.register_buffer("late", torch.ones(2), persistent=False)
    full = capture({"model": model})
    restore(empty, {"model": model})
    assert model.cache is None
    assert not hasattr(model, "late")
    restore(full, {"model": model})
    assert model.cache.tolist() == [0, 1, 2]
    assert model.late.tolist() == [1, 1]
    model.grow(9)
    restore(full, {"model": model})
    assert first_difference(full, capture({"model": model})) is None


def test_a_float16_run_can_be_replayed_in_float32():
    def build(dtype):
        model = nn.Linear(4, 2).to(dtype)
        return {"model": model, "optimizer": torch.optim.Adam(model.parameters(), lr=0.1)}

    half = build(torch.float16)
    for parameter in half["model"].parameters():
        parameter.grad = torch.full_like(parameter, 0.25)
    half["optimizer"].step()
    snapshot = capture(half)
    full = build(torch.float32)
    restore(snapshot, full)
    assert torch.equal(full["model"].weight, half["model"].weight.float())
    assert full["model"].weight.grad.dtype == torch.float32
    state = full["optimizer"].state[full["model"].weight]
    assert {key: value.dtype for key, value in state.items()} == {
        "step": torch.float32,
        "exp_avg": torch.float32,
        "exp_avg_sq": torch.float32,
    }
    full["optimizer"].step()


def test_float32_state_of_a_bfloat16_parameter_is_not_rounded():
    def build():
        model = nn.Linear(4, 2).to(torch.bfloat16)
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    model, optimizer = build()
    momentum = torch.full_like(model.weight, 1 / 3, dtype=torch.float32)
    optimizer.state[model.weight]["momentum_buffer"] = momentum
    optimizer.state[model.weight]["counts"] = torch.arange(3)
    snapshot = capture({"model": model, "optimizer": optimizer})
    model, optimizer = build()
    restore(snapshot, {"model": model, "optimizer": optimizer})
    assert torch.equal(optimizer.state[model.weight]["momentum_buffer"], momentum)
    assert optimizer.state[model.weight]["counts"].dtype == torch.int64
    restore(snapshot, {"model": model.float(), "optimizer": optimizer})
    assert torch.equal(optimizer.state[model.weight]["momentum_buffer"], momentum)


def test_a_learning_rate_in_a_tensor_stays_the_same_object(make_world):
    world = make_world("adamw tensor rate")
    world.train(1)
    snapshot = world.capture()
    rate = world.optimizer.param_groups[0]["lr"]
    rate.fill_(5.0)
    world.restore(snapshot)
    assert world.optimizer.param_groups[0]["lr"] is rate
    assert rate.item() == pytest.approx(1e-2)


def test_a_compiled_model_shares_checkpoints_with_the_plain_one(make_world):
    world = make_world()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's own, while it is imported
        compiled = torch.compile(world.model)
    snapshot = capture({"model": compiled})
    assert first_difference(snapshot, capture({"model": world.model})) is None
    restore(snapshot, {"model": world.model})
    restore(snapshot, {"model": compiled})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            lambda: {"model": nn.Linear(5, 2)},
            r"model: weight has shape \(2, 4\) in the checkpoint, \(2, 5\) here",
            id="shape",
        ),
        pytest.param(
            lambda: {"model": nn.Linear(4, 2, bias=False)},
            r"model: bias \(2,\) is not in the model\. Build it as the run did",
            id="missing here",
        ),
        pytest.param(
            lambda: {"model": nn.Sequential(nn.Linear(4, 2))},
            r"model: 0.bias \(2,\) is not in the checkpoint; 0.weight .*; and |is not in the model",
            id="other names",
        ),
        pytest.param(
            lambda: {"optimizer": torch.optim.Adam([nn.Parameter(torch.ones(2, 4))])},
            r"optimizer: .* groups of \[2\] parameters, this optimizer of \[1\]",
            id="parameter count",
        ),
        pytest.param(
            lambda: {
                "optimizer": torch.optim.Adam(
                    [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2, 4))]
                )
            },
            r"optimizer: parameter 0 has shape \(2, 4\) in the checkpoint, \(2,\) here",
            id="parameter order",
        ),
        pytest.param(
            lambda: {"scheduler": None}, "scheduler: is in the checkpoint but not here", id="gone"
        ),
        pytest.param(
            lambda: {"ema": nn.Linear(1, 1)}, "ema: is here but not in the checkpoint", id="new"
        ),
        pytest.param(
            lambda: {"model": torch.optim.SGD([nn.Parameter(torch.ones(1))])},
            "model: is a module in the checkpoint, a optimizer here",
            id="kind",
        ),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_changed(change, message):
    def build():
        model = nn.Linear(4, 2)
        optimizer = torch.optim.Adam(model.parameters())
        scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
        return {"model": model, "optimizer": optimizer, "scheduler": scheduler}

    snapshot = capture(build())
    objects = {**build(), **change()}
    before = state_hash(capture(objects))
    with pytest.raises(CheckpointError, match=message):
        restore(snapshot, objects)
    assert state_hash(capture(objects)) == before


def test_a_load_that_fails_names_the_object():
    class Picky:
        def state_dict(self):
            return {"a": 1}

        def load_state_dict(self, state):
            raise KeyError("b")

    snapshot = capture({"picky": Picky()})
    with pytest.raises(CheckpointError, match=r"picky: Picky\.load_state_dict refused .* 'b'"):
        restore(snapshot, {"picky": Picky()})


@pytest.mark.parametrize(
    "then", [None, torch.amp.GradScaler("cpu", enabled=False), torch.amp.GradScaler("cpu")]
)
@pytest.mark.parametrize(
    "now", [None, torch.amp.GradScaler("cpu", enabled=False), torch.amp.GradScaler("cpu")]
)
def test_a_scaler_on_one_side_only_has_to_be_called_optional(then, now):
    snapshot = capture({"scaler": then})
    restore(snapshot, {"scaler": now}, optional=("scaler",))
    one_sided = (then is not None and then.is_enabled()) != (now is not None and now.is_enabled())
    if one_sided:
        with pytest.raises(CheckpointError, match="scaler: is"):
            restore(snapshot, {"scaler": now})
    else:
        restore(snapshot, {"scaler": now})


class Holder:
    """Remembers whatever it is given."""

    def __init__(self, state=None) -> None:
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def test_what_cannot_be_captured_exactly_is_named_with_a_remedy(make_world):
    world = make_world("adam")
    world.train(1)
    parameter = world.model.conv.weight
    world.optimizer.state[parameter]["hook"] = {"deep": [1, lambda: 0]}
    with pytest.raises(
        NotReplayableError,
        match=r"optimizer\['state'\]\[1\]\['hook'\]\['deep'\]\[1\]: a .*function",
    ):
        world.capture()


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (object(), r"thing: a object has no state_dict\(\)"),
        (Holder({"a": Holder()}), r"thing\['a'\]: a .*Holder cannot be saved"),
        (Holder({Holder: 1}), "the key .* cannot be used"),
        (Holder({"$numpy": 1}), r"thing: the key '\$numpy' \(str\) cannot be used"),
        (nn.LazyLinear(3), "run one forward pass"),
        (nn.Linear(2, 2, device="meta"), "meta device"),
    ],
    ids=["no state_dict", "own class", "key", "own tag", "lazy", "meta"],
)
def test_unfit_objects_are_refused(thing, message):
    with pytest.raises(NotReplayableError, match=message):
        capture({"thing": thing})


def test_state_that_contains_itself_is_refused():
    loop = {}
    loop["loop"] = loop
    with pytest.raises(NotReplayableError, match="may contain itself"):
        capture({"loop": Holder(loop)})


def test_an_expanded_parameter_is_refused_at_capture():
    model = nn.Linear(3, 3)
    model.weight = nn.Parameter(torch.ones(1, 3).expand(3, 3))
    with pytest.raises(NotReplayableError, match=r"model\.weight: several of its elements share"):
        capture({"model": model})


@pytest.mark.parametrize(
    ("value", "finite"), [(1.0, True), (math.nan, False), (math.inf, False), (-math.inf, False)]
)
def test_a_snapshot_knows_whether_it_is_finite(value, finite):
    model = nn.BatchNorm1d(2)
    model.running_mean[1] = value
    assert capture({"model": model}).finite is finite
