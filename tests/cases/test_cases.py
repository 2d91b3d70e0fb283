"""The cases fail as reported, and train with their one right change; else they teach nothing."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path

import pytest
from cases.expected import CASES, VARIANTS

from stabexp.experiment import load, program
from stabexp.state import CheckpointStore
from stabexp.training import Fork, Run, execute

FOLDER = Path(__file__).parents[2] / "experiments" / "cases"

# The loss of ppo_last_batch_one is what torch warns about.
pytestmark = pytest.mark.filterwarnings("ignore:std():UserWarning")


@pytest.fixture(scope="module")
def check():
    # Loaded by path: experiments are scripts, not part of the package.
    spec = importlib.util.spec_from_file_location("cases_check", FOLDER / "check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


EACH = [
    pytest.param(folder, name, known, id=name, marks=[pytest.mark.slow] if known.slow else [])
    for folder, table in ((FOLDER, CASES), (FOLDER / "variants", VARIANTS))
    for name, known in table.items()
]


def test_every_case_is_known():
    assert sorted(CASES) == sorted(file.stem for file in FOLDER.glob("*.yaml"))
    assert sorted(VARIANTS) == sorted(file.stem for file in FOLDER.glob("variants/*.yaml"))


@pytest.mark.parametrize(("folder", "name", "known"), EACH)
def test_fails_as_reported_and_trains_when_fixed(check, folder, name, known):
    if known.detected[0] is None:  # where a detector fires, test_verdicts.py sees it
        assert check.run_case(name, seed=0, fixed=False, folder=folder).silent
    fixed = check.run_case(name, seed=0, fixed=True, folder=folder)
    assert fixed.divergence is None
    assert fixed.held_out <= fixed.target


@pytest.mark.parametrize(("folder", "name", "known"), EACH)
def test_says_where_its_defect_is_and_which_verdict_it_deserves(folder, name, known):
    source = (folder / f"{name}.py").read_text("utf-8")
    experiment, _ = load(folder / f"{name}.yaml")
    assert experiment.expect in known.causes
    (marked,) = [line for line in source.splitlines() if line.startswith("DEFECT = ")]
    marker = ast.literal_eval(marked.removeprefix("DEFECT = "))
    text = (folder / f"{name}.yaml").read_text("utf-8") if experiment.task else source
    assert sum(marker in line for line in text.splitlines() if line != marked) == 1


STATEFUL = {
    "bn_half_running_stats": 30,
    "double_unscale": 20,
    "ga_token_norm": 20,
    "optimizer_noncontig": 20,
    "sched_per_step": 30,
    "wgan_gp_zero": 13,
}
"""Cases whose next step hangs on more than model and Adam, and a step to go on from."""


@pytest.mark.parametrize(("name", "step"), STATEFUL.items())
def test_goes_on_exactly_from_a_checkpoint(name, step, tmp_path):
    changes = ["checkpoint.every=1", f"steps={step + 6}", "train.args.fixed=true"]
    made = program(load(FOLDER / f"{name}.yaml", changes)[0], base=FOLDER)
    records, again = [], []
    with CheckpointStore(tmp_path / "checkpoints", keep=99) as store:
        execute(
            made, Run(made.settings, checkpoints=store, keep_saving=True, on_step=records.append)
        )
    fork = Fork(checkpoints=tmp_path / "checkpoints", step=step)
    execute(made, Run(made.settings, fork=fork, on_step=again.append))
    assert [r.digest for r in again] == [r.digest for r in records[step:]]
