"""`replay`, `check` and `compare` on real trainings, as functions and as commands."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command_line import NOWHERE

from stabexp import api
from stabexp.errors import ConfigError, StabexpError

pytestmark = pytest.mark.usefixtures("no_uploader_left")

TRAINING = """\
import torch


def train(run, lr=0.01, forget=False, noise=0.0):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(64, 4, generator=generator)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5], [0.0]])
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    data = torch.utils.data.TensorDataset(x, y)
    for inputs, targets in run.steps(data, model=model, optimizer=optimizer):
        loss = ((model(inputs) - targets) ** 2).mean() + noise
        run.log(loss)
        if not forget:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
EXPERIMENT = """\
name: {name}
steps: {steps}
threads: 1
train: {{name: training.py:train, args: {{lr: {lr}, forget: {forget}}}}}
batch: {{size: 8}}
checkpoint: {{every: 5, keep: 20}}
monitors: {{}}
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    """A root with three runs: one that learns, one that diverges, one with a fault in its loop."""
    folder = tmp_path_factory.mktemp("examining")
    (folder / "training.py").write_text(TRAINING, "utf-8")
    for name, lr, forget in (
        ("learns", 0.01, "false"),
        ("diverges", 3.0, "false"),
        ("forgets", 1e-4, "true"),
    ):
        text = EXPERIMENT.format(name=name, lr=lr, forget=forget, steps=60)
        (folder / f"{name}.yaml").write_text(text, "utf-8")
        options = [f"tracking.uri={NOWHERE}"]
        api.run(folder / f"{name}.yaml", options, root=folder / "root", drain_seconds=0)
    return folder / "root"


@pytest.fixture
def root(recorded, tmp_path) -> Path:
    """A copy that a test may change."""
    shutil.copytree(recorded, tmp_path / "root")
    return tmp_path / "root"


def crash_of(root: Path) -> int:
    found = api.load("diverges", root=root).divergence
    assert found is not None
    return found.detected


def test_a_replay_with_nothing_changed_is_a_control_and_equal_in_every_bit(root):
    record, notices = api.replay("learns", from_step=20, steps=10, root=root)
    assert (record.spec.role, record.spec.from_step, record.last_step) == ("control", 20, 29)
    assert record.mismatch is None
    assert notices == ()
    (kept,) = api.load("learns", root=root).trial_records
    assert kept.spec == record.spec


def test_a_replay_changes_what_is_asked_for_from_the_last_good_checkpoint_on(root):
    same, _ = api.replay("diverges", root=root)
    assert same.divergence is not None
    assert same.divergence.detected == crash_of(root)
    lower, _ = api.replay("diverges", ["interventions.learning_rate=0.01"], root=root)
    assert lower.spec.role == "manual"
    assert lower.spec.from_step == same.spec.from_step
    assert lower.divergence is None
    assert lower.outcome == "cured"


def test_from_the_start_the_training_functions_own_arguments_can_be_set(root):
    record, _ = api.replay("learns", ["train.args.lr=3.0"], from_step=0, steps=60, root=root)
    assert dict(record.spec.patch) == {"train.args.lr": 3.0}
    assert record.divergence is not None
    assert record.divergence.detected == crash_of(root)
    with pytest.raises(ConfigError, match="add --from 0"):
        api.replay("learns", ["train.args.lr=3.0"], from_step=20, root=root)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"from_step": 7}, "--from 7: no checkpoint of that step"),
        ({"assignments": ["interventions.lerning_rate=1"]}, "did you mean 'learning_rate'"),
        ({"assignments": ["clip"]}, "expected key=value"),
    ],
)
def test_a_replay_that_cannot_be_made_says_why(root, options, says):
    with pytest.raises(ConfigError, match=says):
        api.replay("learns", **options, root=root)


def test_a_loop_that_forgets_its_gradients_is_found_out_though_nothing_diverged(root):
    verdict = api.check("forgets", root=root, drain_seconds=0)
    assert verdict.cause == "implementation"
    assert verdict.culprit is not None
    assert verdict.culprit.kind == "gradient_accumulates_over_steps"
    assert verdict.culprit.place.startswith("training.py:")
    assert verdict.fix == {}


def test_where_two_runs_part_and_by_which_setting(root):
    found = api.compare("learns", "diverges", root=root, replay=True, search=True)
    assert found.parted
    assert found.record is not None
    assert found.record.step == 0, "the first update is made at another rate"
    assert [key.key for key in found.keys if "lr" in key.key] == ["train.args.lr"]
    assert found.not_reproduced == ()
    assert found.search is not None
    assert found.search.settings == ("train.args.lr",)
    assert found.search.good == found.first


def test_a_run_is_the_same_as_itself(root):
    found = api.compare("learns", "learns", root=root)
    assert (found.parted, found.shared_steps, found.keys) == (False, 60, ())


def test_a_search_needs_a_run_that_diverged(root):
    with pytest.raises(StabexpError, match="diverged"):
        api.compare("learns", "forgets", root=root, search=True)


def test_check_prints_the_fault_and_ends_well_or_says_that_nothing_was_found(stabexp_command, root):
    faulty = stabexp_command("check", "forgets", "--root", root, "-q")
    assert faulty.code == 0
    assert "training.py:" in faulty.out
    sound = stabexp_command("check", "learns", "--root", root, "-q", "--json")
    assert sound.code == 4
    assert json.loads(sound.out)["cause"] == "inconclusive"


def test_compare_prints_where_they_part(stabexp_command, root):
    shown = stabexp_command("compare", "learns", "diverges", "--root", root)
    assert shown.code == 0, shown.errors
    assert "train.args.lr" in shown.out
    facts = json.loads(
        stabexp_command("compare", "learns", "diverges", "--root", root, "--json").out
    )
    assert facts["record"]["step"] == 0
    missing = stabexp_command("compare", "learns", "nobody", "--root", root)
    assert missing.code != 0
    assert "nobody" in missing.errors


def test_replay_prints_one_json_object(stabexp_command, root):
    done = stabexp_command(
        "replay", "learns", "--root", root, "--from", "20", "--steps", "2", "--json"
    )
    assert done.code == 0, done.errors
    assert json.loads(done.out)["last_step"] == 21


def test_a_bisect_takes_every_wish_at_once(stabexp_command, root):
    wishes = ["--good", "0", "--bad", crash_of(root), "--skip", "10", "--seeds", "1", "--layers"]
    done = stabexp_command(
        "bisect", "diverges", "--root", root, "--workers", "0", "--variables", "learning_rate",
        "--thorough", "--budget", "30m", "-q", "--json", *wishes,
    )  # fmt: skip
    verdict = json.loads(done.out)
    assert (done.code, verdict["cause"]) == (0, "learning_rate")
    assert verdict["confidence"] == 0.75, "a ramp or a larger batch might do as well"
    answers = {step["node"]: step["answer"] for step in verdict["path"]}
    assert answers["repeats"] == answers["reversal"] == answers["proof"] == "yes"
    assert answers["warmup"] == "not tried"
    assert verdict["good_step"] == 0
    assert verdict["divergence"]["detected"] == crash_of(root)
    starts = {trial.spec.from_step for trial in api.load("diverges", root=root).trial_records}
    assert 10 not in starts
