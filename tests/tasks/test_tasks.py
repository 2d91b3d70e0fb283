"""What every built-in task promises, and what each promises of its own."""

from __future__ import annotations

import contextlib
import math
import pickle

import pytest
import torch

from stabexp.errors import ConfigError
from stabexp.tasks import TASKS, load_task, read_batch, task_name
from stabexp.tasks.data import InMemory
from stabexp.tasks.text import CHARACTERS, tokens

TINY = {
    "gpt": {"width": 16, "layers": 1, "heads": 2, "context": 16},
    "lstm": {"width": 32, "context": 16},
    "rnn": {"width": 32, "context": 16},
    "mlp": {"width": 32},
    "cnn": {"width": 8},
    "two_tower": {"width": 32},
    "weighted_mlp": {"width": 32, "heavy_weight": 3},
}
RATES = {
    "gpt": 1e-2,
    "lstm": 1e-2,
    "rnn": 1e-2,
    "mlp": 1e-2,
    "cnn": 1e-2,
    "two_tower": 1e-2,
    "weighted_mlp": 1e-2,
}
FORMATS = {
    "fp32": (torch.float32, None),
    "bf16": (torch.float32, torch.bfloat16),
    "fp16": (torch.float32, torch.float16),
    "pure_bf16": (torch.bfloat16, None),
    "pure_fp16": (torch.float16, None),
    "fp64": (torch.float64, None),
}


def autocast(dtype):
    return torch.autocast("cpu", dtype=dtype) if dtype else contextlib.nullcontext()


def train(task, *, steps, lr, batch_size=32):
    """Return the losses of a plain Adam loop over shuffled samples, from seed 0."""
    torch.manual_seed(0)
    model, dataset = task.model(), task.dataset()
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    order = torch.randperm(len(dataset)).tolist()
    losses = []
    for step in range(steps):
        batch = read_batch(dataset, order[step * batch_size : (step + 1) * batch_size])
        loss = task.loss(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", TASKS)
def test_fifty_steps_bring_the_loss_clearly_below_that_of_knowing_nothing(name):
    task = load_task(name, TINY[name])
    losses = train(task, steps=50, lr=RATES[name])
    expected = task.describe()["expected_initial_loss"]
    assert sum(losses[-5:]) / 5 < 0.85 * expected


@pytest.mark.parametrize("name", TASKS)
def test_the_first_loss_is_about_ln_of_the_class_count(name):
    task = load_task(name)
    expected = task.describe()["expected_initial_loss"]
    dataset = task.dataset()
    for seed in range(3):
        torch.manual_seed(seed)
        batch = read_batch(dataset, torch.randperm(len(dataset))[:32].tolist())
        assert task.loss(task.model(), batch).item() == pytest.approx(expected, rel=0.25)


@pytest.mark.parametrize("name", TASKS)
def test_the_same_seed_gives_the_same_model_batches_and_losses_bit_for_bit(name):
    task = load_task(name, TINY[name])
    assert train(task, steps=3, lr=0.01) == train(task, steps=3, lr=0.01)
    digests = {task.dataset().digest(), load_task(name, TINY[name]).dataset().digest()}
    assert len(digests) == 1


@pytest.mark.parametrize("number_format", FORMATS)
@pytest.mark.parametrize("name", TASKS)
def test_one_step_runs_in(name, number_format):
    task = load_task(name, TINY[name])
    weights, region = FORMATS[number_format]
    torch.manual_seed(0)
    model = task.model().to(weights)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with autocast(region):
        loss = task.loss(model, read_batch(task.dataset(), range(8)))
    loss.backward()
    optimizer.step()
    assert loss.shape == ()
    assert loss.isfinite()
    assert all(p.grad is not None and p.dtype == weights for p in model.parameters())


@pytest.mark.parametrize("name", TASKS)
def test_a_model_of_nan_gives_a_nan_loss_and_no_error(name):
    task = load_task(name, TINY[name])
    model = task.model()
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, math.nan)
    assert task.loss(model, read_batch(task.dataset(), [0, 1, 2])).isnan()


@pytest.mark.parametrize("name", TASKS)
def test_a_batch_is_its_samples_stacked_and_samples_are_copies(name):
    dataset = load_task(name, TINY[name]).dataset()
    ids = [5, 0, len(dataset) - 1]
    stacked = [torch.stack(column) for column in zip(*(dataset[i] for i in ids), strict=True)]
    for fast, slow in zip(dataset.batch(ids), stacked, strict=True):
        assert torch.equal(fast, slow)
    before = dataset.digest()
    for tensor in (*dataset[0], *dataset.batch([0])):
        tensor.zero_()
    assert dataset.digest() == before


@pytest.mark.parametrize("name", TASKS)
def test_reading_data_leaves_the_random_state_alone(name):
    before = torch.get_rng_state()
    task = load_task(name, TINY[name])
    read_batch(task.dataset(), [0, 1])
    task.describe()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", TASKS)
def test_a_task_survives_pickling_and_knows_its_name(name):
    task = load_task(name, TINY[name])
    assert pickle.loads(pickle.dumps(task)) == task
    assert task_name(type(task)) == task.describe()["name"] == name


@pytest.mark.parametrize("norm", ["pre", "post", "none"])
def test_gpt_does_not_look_ahead(norm):
    task = load_task("gpt", {**TINY["gpt"], "norm": norm, "init_std": 0.2})
    model = task.model()
    (inputs, _) = read_batch(task.dataset(), [0])
    changed = inputs.clone()
    changed[0, 9:] = 0
    assert torch.equal(model(inputs)[0, :9], model(changed)[0, :9])
    assert not torch.equal(model(inputs)[0, 9], model(changed)[0, 9])


def test_gpt_grows_to_a_million_parameters():
    model = load_task("gpt", {"width": 144, "layers": 4}).model()
    assert sum(p.numel() for p in model.parameters()) > 1e6


def test_gpt_shares_the_output_layer_only_when_tied():
    tied = load_task("gpt", {"tied": True}).model()
    free = load_task("gpt", {"tied": False}).model()
    assert tied.head.weight is tied.tokens.weight
    assert free.head.weight is not free.tokens.weight


def test_an_attention_scale_too_large_for_fp16_overflows_in_fp16_alone():
    task = load_task("gpt", {**TINY["gpt"], "qk_scale": 1e5, "init_std": 0.5})
    torch.manual_seed(0)
    model, batch = task.model(), read_batch(task.dataset(), range(4))
    assert task.loss(model, batch).isfinite()
    assert not task.loss(model.half(), batch).isfinite()


def test_the_lstm_in_fp16_autocast_has_the_gradients_of_fp32():
    task = load_task("lstm", TINY["lstm"])
    torch.manual_seed(0)
    model, batch = task.model(), read_batch(task.dataset(), range(8))
    task.loss(model, batch).backward()
    exact = model.recurrent.weight_hh_l0.grad.clone()
    model.zero_grad()
    with autocast(torch.float16):
        task.loss(model, batch).backward()
    torch.testing.assert_close(model.recurrent.weight_hh_l0.grad, exact, rtol=0.05, atol=1e-5)


@pytest.mark.parametrize("name", ["rnn", "lstm"])
def test_a_recurrent_gain_sets_the_largest_singular_value(name):
    model = load_task(name, {**TINY[name], "recurrent_gain": 1.5}).model()
    for gate in model.recurrent.weight_hh_l0.data.split(32):
        assert torch.linalg.matrix_norm(gate, 2).item() == pytest.approx(1.5, rel=1e-4)


@pytest.mark.parametrize("name", ["mlp", "cnn"])
@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
def test_digits_models_take_every_norm(name, norm):
    task = load_task(name, {**TINY[name], "norm": norm, "dropout": 0.1})
    losses = train(task, steps=50, lr=0.01)
    assert sum(losses[-5:]) / 5 < 0.85 * math.log(10)


def test_matching_towers_reach_zero_although_a_batch_repeats_digits():
    task = load_task("two_tower")
    losses = train(task, steps=50, lr=0.01)
    assert losses[-1] < 0.6
    assert task.loss(_perfect, read_batch(task.dataset(), range(30))).item() < 1e-3


class _Perfect(torch.nn.Module):
    """Scores 30 for every right pair of the first thirty samples, 0 for the others."""

    def __init__(self):
        super().__init__()
        self.unused = torch.nn.Parameter(torch.zeros(()))

    def forward(self, images, letters):
        return 30.0 * (letters[:, None] == letters).all(-1)


_perfect = _Perfect()


def test_the_logit_scale_stops_at_its_limit():
    images, letters = read_batch(load_task("two_tower").dataset(), range(8))
    for limit, largest in [(None, 1000.0), (100.0, 100.0)]:
        model = load_task("two_tower", {"logit_scale": 1000, "max_logit_scale": limit}).model()
        scores = model(images, letters)
        assert scores.abs().max() <= largest * 1.001
        assert scores.abs().max() > largest * 0.01


def test_the_text_is_python_source():
    text = "".join((CHARACTERS + "?")[token] for token in tokens().tolist())
    assert "\nimport re\n" in text
    assert text.count("?") < len(text) // 100
    assert len(tokens()) > 300_000


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(ConfigError, match="heads 3 does not divide width 32; set width to"):
        load_task("gpt", {"heads": 3})


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match=r"one length are needed, found lengths \[2, 3\]"):
        InMemory(torch.zeros(2), torch.zeros(3))
