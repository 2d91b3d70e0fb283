"""A training function of one's own: what works, and what each mistake is told."""

from __future__ import annotations

import textwrap

import pytest
import torch

from stabexp.config import Document, validate
from stabexp.errors import NotReplayableError, TrainingError
from stabexp.experiment import Experiment, program
from stabexp.state import CheckpointStore, first_difference
from stabexp.training import Fork

# torch's warning about every scaled training whose first update is left out.
pytestmark = pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")

HEAD = """\
import torch
from torch import nn
from torch.utils.data import TensorDataset

def parts():
    torch.manual_seed(0)
    x = torch.randn(60, 5)
    model = nn.Linear(5, 1)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    return data, model, torch.optim.SGD(model.parameters(), 0.01)

"""

COMPLETE = """\
class Average:
    def __init__(self, model):
        self.weights = [p.detach().clone() for p in model.parameters()]
    def update(self, model):
        for kept, p in zip(self.weights, model.parameters()):
            kept.lerp_(p.detach(), 0.1)
    def state_dict(self):
        return {"weights": self.weights}
    def load_state_dict(self, state):
        self.weights = [w.clone() for w in state["weights"]]

def train(run, decay=0.9):
    data, model, optimizer = parts()
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, decay)
    average, scaler = Average(model), run.scaler()
    steps = run.steps(data, model=model, optimizer=optimizer, scheduler=scheduler,
                      scaler=scaler, batch_size=7, extra={"average": average})
    for index, (x, y) in enumerate(steps, start=1):
        with run.autocast():
            loss = (model(x) - y).pow(2).mean()
        run.log(loss)
        share = loss / run.settings.accumulate
        (scaler.scale(share) if scaler else share).backward()
        if index % run.settings.accumulate == 0:
            if scaler:
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
            average.update(model)
"""


@pytest.fixture
def own(tmp_path):
    """Return the program of a file with this code."""

    def make(code, **values):
        (tmp_path / "own.py").write_text(HEAD + textwrap.dedent(code))
        given = {
            "name": "own",
            "steps": 6,
            "train": "own.py:train",
            "detectors": {"non_finite": None},
            **values,
        }
        return program(validate(Experiment, Document("own", given)), base=tmp_path)

    return make


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_scaler_accumulation_schedule_and_an_average_all_go_on_exactly(
    own, train, tmp_path, precision, accumulate
):
    made = own(
        COMPLETE,
        precision=precision,
        batch={"accumulate": accumulate},
        train={"name": "own.py:train", "args": {"decay": "0.8"}},
        checkpoint={"every": 4},
    )
    with CheckpointStore(tmp_path / "checkpoints") as store:
        records, run = train(made, keep_saving=True, checkpoints=store)
    assert [record.batch_size for record in records] == [7 * accumulate] * 6
    assert records[2].lr == pytest.approx(0.01 * 0.8**2)
    assert run.used_autocast
    again, fork = train(made, fork=Fork(checkpoints=store.directory, step=4))
    assert [r.digest for r in again] == [r.digest for r in records[4:]]
    assert first_difference(run.snapshot(), fork.snapshot()) is None


LOOP = """
def train(run):
    data, model, optimizer = parts()
    for x, y in run.steps(data, model=model, optimizer=optimizer):
        loss = (model(x) - y).pow(2).mean()
        {body}
"""


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(
            "loss.backward(); optimizer.step()",
            r"step 0: run.log\(loss\) was not called",
            id="never logs the loss",
        ),
        pytest.param(
            "run.log(loss)",
            r"step 0: 1024 batches came without an update; does the loop call step\(\) on",
            id="never steps",
        ),
        pytest.param(
            "run.log(x)",
            r"run.log: the loss has 160 elements, expected one",
            id="loss is not one number",
        ),
        pytest.param(
            "run.log(loss); loss.backward(); optimizer.step()\n"
            "        if run.step == 3: raise ValueError('no luck')",
            r"own\.py:\d+: at step 3: ValueError: no luck",
            id="raises",
        ),
        pytest.param(
            "run.log(loss); model(x[:, :2])",
            r"own\.py:\d+: at step 0: RuntimeError: mat1 and mat2 shapes cannot be multiplied",
            id="raises in a library",
        ),
    ],
)
def test_a_mistake_in_the_loop_is_a_training_error_with_its_place(own, train, body, message):
    with pytest.raises(TrainingError, match=message):
        train(own(LOOP.format(body=body)))


def test_the_line_named_is_the_users_own(own, train, tmp_path):
    code = LOOP.format(body="nn.functional.linear(x, y)")
    line = (HEAD + textwrap.dedent(code)).splitlines().index("        nn.functional.linear(x, y)")
    with pytest.raises(TrainingError) as caught:
        train(own(code))
    assert str(caught.value).startswith(f"{tmp_path / 'own.py'}:{line + 1}: at step 0: ")
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        pytest.param(
            """
            def train(run):
                data, model, optimizer = parts()
                steps = run.steps(data, model=model, optimizer=optimizer)
                run.steps(data, model=model, optimizer=optimizer)
            """,
            "run.steps was called twice",
            id="steps twice",
        ),
        pytest.param(
            """
            def train(run):
                data, model, _ = parts()
                optimizer = torch.optim.LBFGS(model.parameters())
                for x, y in run.steps(data, model=model, optimizer=optimizer):
                    def closure():
                        optimizer.zero_grad()
                        loss = (model(x) - y).pow(2).mean()
                        loss.backward()
                        return loss
                    run.log(closure())
                    optimizer.step(closure)
            """,
            "is an LBFGS, which evaluates the loss several times",
            id="LBFGS",
        ),
        pytest.param(
            """
            def train(run):
                data, model, optimizer = parts()
                for x, y in run.steps(data, model=model, optimizer=optimizer):
                    def closure():
                        optimizer.zero_grad()
                        loss = (model(x) - y).pow(2).mean()
                        loss.backward()
                        return loss
                    run.log(closure())
                    optimizer.step(closure)
            """,
            ".step was given a closure",
            id="closure",
        ),
        pytest.param(
            """
            def train(run):
                data, model, optimizer = parts()
                scaler = run.scaler()
                run.steps(data, model=model, optimizer=optimizer)
            """,
            "pass scaler=",
            id="scaler kept to itself",
        ),
        pytest.param(
            """
            def train(run):
                data, _, _ = parts()
                model = nn.Embedding(9, 3, sparse=True)
                optimizer = torch.optim.SGD(model.parameters(), 0.1)
                for x, y in run.steps(data, model=model, optimizer=optimizer):
                    loss = model(torch.tensor([1, 2])).sum()
                    run.log(loss)
                    loss.backward()
                    optimizer.step()
            """,
            "a gradient is sparse",
            id="sparse gradients",
        ),
        pytest.param(
            """
            def train(run):
                data, model, optimizer = parts()
                for x, y in run.steps(data, model=model, optimizer=optimizer, extra={"bag": {1}}):
                    pass
            """,
            r"bag: a set has no state_dict\(\)",
            id="extra without a state",
        ),
    ],
)
def test_what_cannot_be_replayed_is_refused(own, train, tmp_path, code, message):
    with (
        pytest.raises(NotReplayableError, match=message),
        CheckpointStore(tmp_path / "checkpoints") as store,
    ):
        train(own(code, precision="fp16"), keep_saving=True, checkpoints=store)


def test_a_function_that_makes_no_step_is_told_so(own, train):
    with pytest.raises(TrainingError, match="returned without making a step"):
        train(own("def train(run): pass"))


@pytest.mark.parametrize(
    "leave", ["break", "return", "raise KeyboardInterrupt", "raise ValueError('no')"]
)
@pytest.mark.parametrize("kept", [False, True])
def test_the_last_update_is_recorded_however_the_loop_is_left(own, tmp_path, leave, kept):
    code = """
    def train(run):
        data, model, optimizer = parts()
        train.optimizer = optimizer
        steps = run.steps(data, model=model, optimizer=optimizer)
        for x, y in {steps}:
            loss = (model(x) - y).pow(2).mean()
            run.log(loss)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if run.step == 2:
                {leave}
    """
    from stabexp.training import Run, execute

    made = own(code.format(steps="steps" if kept else "iter(steps)", leave=leave))
    records = []
    run = Run(made.settings, on_step=records.append)
    problem = None
    try:
        execute(made, run)
    except (TrainingError, KeyboardInterrupt) as error:
        problem = error  # kept alive, with its traceback and the loop's variables
    assert (problem is None) == ("raise" not in leave)
    assert [record.step for record in records] == [0, 1, 2]
    optimizer = made.train.func.optimizer
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks


def test_a_step_whose_record_cannot_be_kept_is_not_finished_twice(own):
    from stabexp.errors import TrackingError
    from stabexp.training import Run, execute

    calls = []

    def full_disk(record):
        calls.append(record.step)
        raise TrackingError("disk full")

    made = own(COMPLETE)
    with pytest.raises(TrackingError, match="disk full"):
        execute(made, Run(made.settings, on_step=full_disk))
    assert calls == [0]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_all_objects_are_left_without_hooks(own, train, precision):
    held = {}
    made = own(COMPLETE, precision=precision, monitors={"half_range": None, "layers": None})
    _, run = train(made)
    held.update(run.parts.objects)
    assert not held["optimizer"]._optimizer_step_pre_hooks
    assert not any(module._forward_hooks for module in held["model"].modules())
    assert "step" not in vars(held["scaler"] or torch.amp.GradScaler("cpu"))
