"""Whatever loader a loop has, a fork in the middle of any pass sees the data that the run saw."""

from __future__ import annotations

from multiprocessing import active_children

import pytest
import torch
from recording import record
from torch.utils.data import DataLoader
from training import feed_worlds
from training.feed_worlds import LOADERS, STREAMS, accumulating

from stabexp.bisection.replay import first_mismatch
from stabexp.errors import NotReplayableError
from stabexp.state.random_streams import seed_everything

pytestmark = [
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),  # torchdata
    pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker:UserWarning"),
]

STEPS = 14
FORKS = (0, 1, 2, 4, 9, 11)
"""With eight batches in a pass, two to a step: the start, inside and at the end of passes."""


@pytest.mark.parametrize("kind", LOADERS)
def test_forks_of_every_kind_of_loader_are_exact(tmp_path, kind):
    others = set(active_children())
    made = record(accumulating(LOADERS[kind]), tmp_path, steps=STEPS, batch_size=8, accumulate=2)
    assert len(made.records) == STEPS
    for step in FORKS:
        again = made.replay(step)
        assert len(again) == STEPS - step
        assert first_mismatch(made.records, again) == (None, ""), f"fork at step {step}"
        ids = [record.sample_ids for record in again]
        assert ids == [record.sample_ids for record in made.records[step:]]
    # Those that are left to the garbage collector hold up a later replay for ten seconds.
    assert set(active_children()) <= others, "worker processes outlived their runs"


@pytest.mark.parametrize("kind", [kind for kind in LOADERS if kind not in STREAMS])
def test_the_ids_of_a_step_name_the_samples_that_it_saw(tmp_path, kind):
    inputs = feed_worlds.table().tensors[0]
    seen = []

    def train(run):
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for batch in run.steps(LOADERS[kind](), model=model, optimizer=optimizer):
            x, _ = feed_worlds.parts(batch)
            seen.append(torch.cdist(x, inputs).argmin(1).tolist())
            run.log(loss := model(x).square().mean())
            loss.backward()
            optimizer.step()

    made = record(train, tmp_path, steps=STEPS, batch_size=8)
    assert [list(record.sample_ids) for record in made.records] == seen


OURS = {"dataset", "shuffled", "in a row"}


@pytest.mark.parametrize("kind", [kind for kind in LOADERS if kind not in OURS])
def test_a_loader_with_its_own_order_keeps_it(tmp_path, kind):
    """The same loop, its loader iterated by hand, is the same training."""
    train = accumulating(LOADERS[kind])
    made = record(train, tmp_path, steps=STEPS, batch_size=8, accumulate=2)
    bare = Bare(2 * STEPS)
    seed_everything(0)
    train(bare)
    ours = made.run.parts.model.state_dict()
    theirs = bare.model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    pairs = zip(bare.losses[::2], bare.losses[1::2], strict=True)
    assert [record.loss for record in made.records] == pytest.approx(
        [(a + b) / 2 for a, b in pairs], rel=1e-6
    )


class Bare:
    """Stands in for a run and does nothing but iterate the loader, pass after pass."""

    def __init__(self, batches):
        self.batches = batches
        self.losses = []

    def log(self, loss):
        self.losses.append(loss.item())

    def steps(self, loader, *, model, **_):
        self.model = model
        count = epoch = 0
        while True:
            sampler = getattr(loader, "sampler", None)
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
            for batch in loader:
                yield batch
                count += 1
                if count == self.batches:
                    return
            epoch += 1


@pytest.mark.parametrize(
    "kind", ["dataset", "weighted", "last batch dropped", "workers", "iterable", "any iterable"]
)
def test_epochs_end_a_training_that_has_no_number_of_steps(tmp_path, kind):
    made = record(accumulating(LOADERS[kind], epochs=3), tmp_path, steps=None, batch_size=8)
    batches = {"weighted": 7, "workers": 7, "last batch dropped": 7}.get(kind)
    steps = 3 * batches // 2 if batches else 12
    assert len(made.records) == steps - (kind == "dataset")  # 180 samples are 22 batches and a half
    for step in (0, 5, 9):
        assert first_mismatch(made.records, made.replay(step)) == (None, "")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        pytest.param("iterable", "2 batches were read again", id="stream"),
        pytest.param("any iterable", "2 batches were read again", id="any iterable"),
        pytest.param("stateful loader, iterable", "2 batches were read again", id="none"),
        pytest.param(
            "workers that draw", "workers draw random numbers, so 5 batches", id="workers"
        ),
        pytest.param("weighted", None, id="by index"),
        pytest.param("stateful loader", None, id="stateful loader by index"),
        pytest.param("stateful loader, iterable with a state", None, id="stateful stream"),
    ],
)
def test_what_is_read_again_to_get_to_a_step_is_said(tmp_path, kind, said):
    from stabexp.training import Fork, Run, execute

    made = record(accumulating(LOADERS[kind]), tmp_path, steps=8, batch_size=8, accumulate=2)
    step = 6 if "workers" in kind else 5  # 12 batches of 7 in a pass, or 10 of 8
    fork = Fork(checkpoints=made.checkpoints, step=step, records=made.records[:step])
    run = Run(made.program.settings, fork=fork)
    execute(made.program, run)
    assert bool(run.notices) == (said is not None)
    if said is not None:
        assert said in run.notices[0]


def test_a_sampler_that_draws_too_often_is_named(tmp_path):
    class Endless(feed_worlds.Lazy):
        def __iter__(self):
            while True:
                yield torch.randint(feed_worlds.SIZE, (4,)).tolist()

    train = accumulating(lambda: DataLoader(feed_worlds.table(), batch_sampler=Endless()))
    made = record(train, tmp_path, steps=256, checkpoint_every=1000)
    assert made.run.notices == []
    made = record(train, tmp_path / "2", steps=257, checkpoint_every=1000)
    assert "Endless draws from the global random streams for every batch" in made.run.notices[0]
    assert "give it a torch.Generator of its own" in made.run.notices[0]


REFUSED = {
    "one-shot iterator": (
        lambda: iter(DataLoader(feed_worlds.table(), 8)),
        "a _SingleProcessDataLoaderIter can be read only once, .* pass a dataset, a DataLoader",
    ),
    "generator": (
        lambda: (batch for batch in DataLoader(feed_worlds.table(), 8)),
        "a generator can be read only once, .* pass a dataset, a DataLoader",
    ),
    "number": (lambda: 3, "a int can be read only once"),
    "empty dataset": (lambda: [], "the dataset is empty; a training needs at least one sample"),
    "loader without batches": (
        lambda: DataLoader(feed_worlds.table(), batch_sampler=[]),
        "run.steps: the loader has no batches",
    ),
    "object that ends": (
        type("Once", (), {"__iter__": lambda self: iter(())}),
        r"Once has no batches in a second pass; its iter\(\) must start from the beginning",
    ),
    "persistent workers that draw": (
        lambda: DataLoader(
            feed_worlds.Augmented(),
            8,
            sampler=list(range(60)),
            num_workers=1,
            persistent_workers=True,
        ),
        "worker processes draw random numbers, .*; set persistent_workers=False",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_data_that_cannot_be_read_again_is_refused(tmp_path, name):
    make, message = REFUSED[name]
    with pytest.raises(NotReplayableError, match=message):
        record(accumulating(make), tmp_path, steps=20, batch_size=8)
