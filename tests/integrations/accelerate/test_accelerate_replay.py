"""A loop written for Accelerate is recorded, replayed bit for bit, and left as it is."""

from __future__ import annotations

import pytest
import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import GradientAccumulationPlugin
from recording import record
from torch import nn
from torch.utils.data import DataLoader, WeightedRandomSampler
from training.feed_worlds import SIZE, WEIGHTS, Augmented, Remembering, Stream, network, table
from training.test_feeds_replay import Bare

from stabexp.bisection.replay import first_mismatch
from stabexp.errors import NotReplayableError
from stabexp.integrations import accelerate
from stabexp.integrations.accelerate import accelerated
from stabexp.interventions import build
from stabexp.state.random_streams import seed_everything

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata

STEPS, FORKS = 13, (0, 1, 2, 3, 7, 10)
"""Eight batches in a pass, three to a step: the third step of a pass has two."""


def forget():
    """Make Accelerate forget the settings of the first Accelerator, which hold for a process."""
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


@pytest.fixture(autouse=True)
def _forget():
    forget()


LOADERS = {
    "shuffled": lambda: DataLoader(Augmented(), 8, shuffle=True),
    "in a row": lambda: DataLoader(table(), 8),
    "weighted": lambda: DataLoader(Augmented(), 8, sampler=WeightedRandomSampler(WEIGHTS, SIZE)),
    "last batch dropped": lambda: DataLoader(Augmented(), 7, shuffle=True, drop_last=True),
    "workers": lambda: DataLoader(table(), 8, shuffle=True, num_workers=2),
    "iterable": lambda: DataLoader(Stream(), 8),
    "iterable in workers": lambda: DataLoader(Stream(), 8, num_workers=1),
    "iterable with a state": lambda: DataLoader(Remembering(), 8),
}

CONFIGURATIONS = {
    "default": {},
    "seedable": {"use_seedable_sampler": True},
    "dispatched": {"dispatch_batches": True},
    "split": {"split_batches": True},
    "uneven": {"even_batches": False},
}


def loop(make, configuration=None, *, with_stabexp=True, through=True, **options):
    """Return an Accelerate training with dropout, clipping, a schedule and three micro-batches."""

    def train(run):
        plugin = GradientAccumulationPlugin(num_steps=3, sync_with_dataloader=through)
        accelerator = Accelerator(
            cpu=True,
            gradient_accumulation_plugin=plugin,
            dataloader_config=DataLoaderConfiguration(**(configuration or {})),
            **options,
        )
        model = network()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)
        model, optimizer, loader, scheduler = accelerator.prepare(
            model, optimizer, make(), scheduler
        )
        given = {"extra": accelerated(accelerator)} if with_stabexp else {}
        for x, y in run.steps(
            loader, model=model, optimizer=optimizer, scheduler=scheduler, **given
        ):
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(x), y)
                run.log(loss)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()

    return train


CASES = {
    **{kind: (make, {}, {}) for kind, make in LOADERS.items()},
    **{
        f"{kind}, {name}": (LOADERS[kind], configuration, {})
        for name, configuration in CONFIGURATIONS.items()
        for kind in ("shuffled", "weighted")
        if configuration
    },
    "bf16": (LOADERS["shuffled"], {}, {"mixed_precision": "bf16"}),
    "accumulates over the end of a pass": (LOADERS["shuffled"], {}, {"through": False}),
}


@pytest.mark.parametrize("name", CASES)
def test_forks_of_an_accelerate_loop_are_exact(tmp_path, name):
    make, configuration, options = CASES[name]
    made = record(loop(make, configuration, **options), tmp_path, steps=STEPS)
    sizes = [record.batch_size for record in made.records[:4]]
    whole = {
        "last batch dropped": [21, 21, 14, 21],
        "accumulates over the end of a pass": [24, 24, 20, 24],
    }
    assert sizes == whole.get(name, [24, 24, 12, 24])
    assert all(record.grad_norm > 0 for record in made.records)
    for step in FORKS:
        again = made.replay(step)
        assert len(again) == STEPS - step
        assert first_mismatch(made.records, again) == (None, ""), f"fork at step {step}"


@pytest.mark.parametrize("name", CASES)
def test_an_accelerate_loop_is_the_same_without_stabexp(tmp_path, name):
    make, configuration, options = CASES[name]
    made = record(loop(make, configuration, **options), tmp_path, steps=STEPS)
    bare = Bare(sum(len(range(0, record.batch_size, 8)) for record in made.records))
    if name == "last batch dropped":
        bare.batches = sum(record.batch_size // 7 for record in made.records)
    GradientState._reset_state()
    seed_everything(0)
    loop(make, configuration, with_stabexp=False, **options)(bare)
    ours, theirs = made.run.parts.model.state_dict(), bare.model.state_dict()
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


def test_the_norm_before_clipping_is_recorded_and_the_limit_can_be_replaced(tmp_path):
    made = record(loop(LOADERS["shuffled"]), tmp_path, steps=6)
    assert any(record.clip_coefficient < 1 for record in made.records)
    assert max(record.grad_norm for record in made.records) > 0.5
    assert made.run.seen()["clip_norm"] == 0.5
    same = made.replay(2, interventions=build({"clip_norm": 0.5}))
    assert first_mismatch(made.records, same) == (None, "")
    other = made.replay(2, interventions=build({"clip_norm": 0.1}))
    assert other[0].grad_norm == made.records[2].grad_norm
    assert other[0].clip_coefficient == pytest.approx(0.1 / (other[0].grad_norm + 1e-6))


def test_a_bf16_loop_replayed_in_fp32_is_the_fp32_loop(tmp_path):
    made = record(loop(LOADERS["shuffled"], mixed_precision="bf16"), tmp_path / "a", steps=6)
    assert made.run.seen()["precision"] == "bf16"
    wide = made.replay(0, interventions=build({"precision": "fp32"}))
    forget()
    plain = record(loop(LOADERS["shuffled"]), tmp_path / "b", steps=6)
    assert first_mismatch(plain.records, wide) == (None, "")
    assert first_mismatch(made.records, wide) != (None, "")


def test_a_scaler_inside_the_prepared_optimizer_is_part_of_the_state(tmp_path):
    """Accelerate makes one for float16 on a GPU, and steps it by itself."""

    def train(run):
        accelerator = Accelerator(cpu=True)
        model = network()
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
        inner = torch.optim.SGD(model.parameters(), lr=1e-2)
        optimizer = AcceleratedOptimizer(inner, scaler=scaler)
        model, loader = accelerator.prepare(model, LOADERS["shuffled"]())
        steps = run.steps(loader, model=model, optimizer=optimizer, extra=accelerated(accelerator))
        for x, y in steps:
            loss = nn.functional.mse_loss(model(x), y)
            run.log(loss)
            scaler.scale(loss).backward()
            optimizer.step()
            optimizer.zero_grad()

    made = record(train, tmp_path, steps=10)
    assert [record.loss_scale for record in made.records[:4]] == [1024, 1024, 2048, 2048]
    for step in (0, 4, 9):
        assert first_mismatch(made.records, made.replay(step)) == (None, "")


def test_without_its_count_an_accelerate_loop_is_refused(tmp_path):
    with pytest.raises(
        NotReplayableError,
        match=r"optimizer was prepared by Accelerate, .*; pass extra=accelerated\(accelerator\)",
    ):
        record(loop(LOADERS["shuffled"], with_stabexp=False), tmp_path, steps=3)


def test_a_loader_that_keeps_its_own_state_is_refused(tmp_path):
    train = loop(LOADERS["shuffled"], {"use_stateful_dataloader": True})
    with pytest.raises(NotReplayableError, match="leave it out of DataLoaderConfiguration"):
        record(train, tmp_path, steps=3)


def alternating(run):
    """Accumulate for two models by turns, so that updates lie between Accelerate's counts."""
    plugin = GradientAccumulationPlugin(num_steps=3, sync_with_dataloader=False)
    accelerator = Accelerator(cpu=True, gradient_accumulation_plugin=plugin)
    models = {"one": network(), "other": network()}
    optimizers = {name: torch.optim.Adam(model.parameters()) for name, model in models.items()}
    models = {name: accelerator.prepare(model) for name, model in models.items()}
    optimizers = {name: accelerator.prepare(each) for name, each in optimizers.items()}
    loader = accelerator.prepare(LOADERS["shuffled"]())
    given = {"model": models, "optimizer": optimizers, "extra": accelerated(accelerator)}
    for x, y in run.steps(loader, **given):
        for name, model in models.items():
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(x), y)
                if name == "one":
                    run.log(loss)
                accelerator.backward(loss)
                optimizers[name].step()
                optimizers[name].zero_grad()


def test_leaving_the_count_out_of_the_state_shows(tmp_path, monkeypatch):
    made = record(alternating, tmp_path, steps=8)
    for step in range(4):
        assert first_mismatch(made.records, made.replay(step)) == (None, "")
    monkeypatch.setattr(accelerate.AcceleratorCount, "load_state_dict", lambda self, state: None)
    assert first_mismatch(made.records, made.replay(1)) != (None, "")
