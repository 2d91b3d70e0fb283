"""Two real runs: where they part, in which tensor, and which setting made the difference."""

from __future__ import annotations

import pytest
import torch

from stabexp import experiment as experiments
from stabexp.comparison import Side, compare, comparison_text
from stabexp.config import parse_document, patched
from stabexp.errors import ConfigError
from stabexp.records import Divergence
from stabexp.tracking import RunDirectory
from stabexp.training.recorded import train_recorded

GOOD = """\
name: pair
steps: 40
threads: 1
task: {name: mlp, args: {width: 8, depth: 1}}
optimizer: {name: sgd, lr: 0.1}
batch: {size: 16}
checkpoint: {every: 5, keep: 9}
monitors: {}
"""
OWN = """\
import torch
from torch import nn


def train(run, late=0.0):
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(5))
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for (inputs,) in run.steps(torch.utils.data.TensorDataset(x), model=model, optimizer=optimizer):
        hidden = model[1](model[0](inputs))
        if run.step == 7:
            hidden = hidden + late
        loss = (model[2](hidden) ** 2).mean()
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.fixture
def recorded(tmp_path):
    """Train an experiment and return its side of a comparison."""

    def train(name: str, text: str) -> Side:
        (tmp_path / "own.py").write_text(OWN, "utf-8")
        document = parse_document(text)
        experiment = experiments.from_document(document)
        directory = RunDirectory.create(
            tmp_path / name,
            run_id=name,
            kind="run",
            name=name,
            experiment="stabexp",
            tracking_uri="",
        )
        program = experiments.program(experiment, base=tmp_path)
        train_recorded(directory, program, on_step=None)

        def build(patch):
            changed = experiments.from_document(patched(document, patch))
            return experiments.program(changed, base=tmp_path)

        return Side(
            run_id=name,
            directory=directory.path,
            records=directory.read_steps(),
            divergence=directory.divergence(),
            settings=experiments.flat(experiment),
            build=build,
        )

    return train


CRASH = Divergence(
    detector="divergence",
    detected=20,
    onset=18,
    pattern="sudden_jump",
    value=9.0,
    limit=2.0,
    message="the loss rose",
)
OWN_RUN = "name: own\nsteps: 12\nthreads: 1\nbatch: {size: 8}\ncheckpoint: {every: 5, keep: 9}\n"


@pytest.fixture
def pair(recorded):
    """Two runs of one loop that part within step 7."""
    return (
        recorded("early", OWN_RUN + "train: {name: own.py:train}\n"),
        recorded("late", OWN_RUN + "train: {name: own.py:train, args: {late: 0.5}}\n"),
    )


def test_where_two_runs_part_is_found_in_records_states_and_tensors(pair):
    found = compare(*pair, replay=True)
    assert found.record is not None
    assert (found.record.step, found.record.field) == (7, "loss")
    assert found.same_until == 5
    assert found.checkpoint is not None
    assert (found.checkpoint.step, found.checkpoint.differences[0].name) == (10, "model.0.weight")
    assert found.tensor is not None
    assert (found.tensor.step, found.tensor.phase, found.tensor.name) == (7, "forward", "2")
    assert (found.replayed, found.not_reproduced) == ((5, 7), ())
    assert [d.key for d in found.keys] == ["train.args.late"]
    text = comparison_text(found)
    assert "early and late: they part at step 7" in text
    assert "the first tensor that differs is step 7, the output of 2: other bits" in text


def test_a_run_and_its_repetition_are_the_same_in_every_bit(recorded):
    text = OWN_RUN + "train: {name: own.py:train}\n"
    found = compare(recorded("once", text), recorded("again", text), replay=True)
    assert not found.parted
    assert (found.replayed, found.shared_steps) == (None, 12)
    assert "all 12 common steps are the same in every bit" in comparison_text(found)


def test_a_run_that_does_not_replay_as_it_was_recorded_is_named(pair, recorded):
    first, second = pair
    spoilt = Side(**{**vars(second), "settings": first.settings, "build": first.build})
    found = compare(first, spoilt, replay=True)
    assert found.tensor is None
    assert found.not_reproduced == ("late",)
    assert "every tensor is the same, and not what late recorded" in comparison_text(found)


def test_the_setting_that_matters_is_found_among_those_that_differ(recorded):
    bad = GOOD.replace("lr: 0.1", "lr: 60.0, weight_decay: 1.0e-4").replace("size: 16", "size: 12")
    good_side, bad_side = recorded("good", GOOD), recorded("bad", bad + "seed: 2\n")
    assert good_side.divergence is None
    assert bad_side.divergence is not None
    asked = []
    threads = torch.get_num_threads()
    found = compare(bad_side, good_side, search=True, progress=asked.append).search
    assert found is not None
    assert (found.good, found.bad, found.finding) == ("good", "bad", "found")
    assert (found.settings, found.patch) == (("optimizer.lr",), {"optimizer.lr": 60.0})
    assert found.questions == len(asked) <= 6
    assert asked[0].settings == ("optimizer.lr", "optimizer.weight_decay", "batch.size", "seed")
    assert torch.get_num_threads() == threads


def test_a_search_needs_one_run_of_each_kind(recorded):
    good = recorded("good", GOOD)
    with pytest.raises(ConfigError, match="--search: neither of good and good diverged"):
        compare(good, good, search=True)
    bad = Side(**{**vars(good), "divergence": CRASH})
    with pytest.raises(ConfigError, match="have the same settings"):
        compare(good, bad, search=True)
