"""Names in an experiment file become tasks and functions, or a clear error."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from stabexp.errors import ConfigError
from stabexp.tasks import dataset_digest, load_function, load_task, read_batch

LINE_TASK = """
import torch
from neighbour import SLOPE
from pydantic import Field
from stabexp.tasks import Task

class Line(Task):
    points: int = Field(8, ge=1)
    '''How many points.'''

    def dataset(self):
        x = torch.linspace(-1, 1, self.points).unsqueeze(1)
        return torch.utils.data.TensorDataset(x, SLOPE * x)

    def model(self):
        return torch.nn.Linear(1, 1)

    def loss(self, model, batch):
        x, y = batch
        return (model(x) - y).square().mean()

class Half(Task):
    def dataset(self):
        return []

class Other:
    pass

def train(run):
    return "trained"

number = 3
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "line.py").write_text(LINE_TASK)
    (tmp_path / "neighbour.py").write_text("SLOPE = 3.0\n")
    (tmp_path / "broken.py").write_text("import math\nmath.sqrt(-1)\n")
    (tmp_path / "typo.py").write_text("x = 1\ndef f(:\n")
    (tmp_path / "leaves.py").write_text("raise SystemExit(3)\n")
    yield tmp_path
    sys.modules.pop("neighbour", None)
    sys.path.remove(str(tmp_path)) if str(tmp_path) in sys.path else None


def test_a_task_from_a_file_trains(folder):
    task = load_task("line.py:Line", {"points": "16"}, base=folder)
    torch.manual_seed(0)
    model = task.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    batch = read_batch(task.dataset(), range(16))
    for _ in range(60):
        optimizer.zero_grad()
        loss = task.loss(model, batch)
        loss.backward()
        optimizer.step()
    assert loss.item() < 1e-6
    facts = task.describe()
    assert facts["name"] == f"{folder / 'line.py'}:Line"
    assert facts["expected_initial_loss"] is None
    assert (facts["dataset_size"], facts["args"]) == (16, {"points": 16})


def test_a_task_from_a_file_can_be_pickled_into_another_process(folder):
    task = load_task("line.py:Line", {"points": 5}, base=folder)
    assert pickle.loads(pickle.dumps(task)) == task
    (folder / "task.pickle").write_bytes(pickle.dumps(task))
    code = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).points)"
    result = subprocess.run(
        [sys.executable, "-c", code, str(folder / "task.pickle")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        check=False,
    )
    assert (result.stdout.strip(), result.returncode) == ("5", 0), result.stderr


def test_the_same_file_is_loaded_once_and_an_edited_one_again(folder):
    first = load_function("line.py:train", base=folder)
    assert load_function(str(folder / "line.py") + ":train") is first
    assert first(None) == "trained"
    (folder / "line.py").write_text("def train(run):\n    return 'edited'\n")
    assert load_function("line.py:train", base=folder)(None) == "edited"


def test_a_function_and_a_task_from_a_package():
    assert load_function("math:sqrt") is math.sqrt
    assert load_task("stabexp.tasks.mlp:MLP", {"width": 8}) == load_task("mlp", {"width": 8})


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("gtp", {}, "task gtp: unknown task; did you mean 'gpt'?; your own is"),
        ("gpt", {"widht": 3}, "task gpt: widht: unknown key; did you mean 'width'?"),
        ("gpt", {"width": "wide"}, "task gpt: width: expected a valid integer"),
        ("gpt", {"width": 0}, "task gpt: width: expected greater than or equal to 1, found 0"),
        ("lin.py:Line", {}, "lin.py; did you mean 'line.py'?"),
        ("empty/line.py:Line", {}, "there is no Python file in that folder"),
        ("line.py:Lin", {}, "task line.py:Lin: no 'Lin' in line.py; did you mean 'Line'?"),
        ("line.py:Other", {}, "task line.py:Other: is not a task; derive it from"),
        ("line.py:Half", {}, "task line.py:Half: does not define loss, model; add it"),
        ("line.py:Line", {"points": 0}, "points: expected greater than or equal to 1, found 0"),
        ("line.py:", {}, "expected 'path/to/file.py:name' or 'package.module:name'"),
        ("broken.py:Line", {}, "broken.py:2: ValueError: "),
        ("typo.py:Line", {}, "typo.py:2: SyntaxError: invalid syntax"),
        ("leaves.py:Line", {}, "leaves.py:1: SystemExit: 3"),
        ("no_such_package.tasks:Line", {}, "no module named 'no_such_package'; install it, or"),
        ("stabexp.tasks.mlp:MPL", {}, "no 'MPL' in stabexp.tasks.mlp; did you mean 'MLP'?"),
    ],
)
def test_a_wrong_task_is_explained(folder, name, args, message):
    with pytest.raises(ConfigError) as caught:
        load_task(name, args, base=folder)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("line.py:trian", "function line.py:trian: no 'trian' in line.py; did you mean 'train'?"),
        ("line.py:number", "function line.py:number: is a value of type int, not a function"),
        ("train", "function train: expected 'path/to/file.py:name'"),
    ],
)
def test_a_wrong_function_is_explained(folder, reference, message):
    with pytest.raises(ConfigError) as caught:
        load_function(reference, base=folder)
    assert message in str(caught.value)


def test_a_file_that_failed_is_tried_again_after_it_is_mended(folder):
    with pytest.raises(ConfigError):
        load_function("broken.py:f", base=folder)
    (folder / "broken.py").write_text("def f():\n    return 1\n")
    assert load_function("broken.py:f", base=folder)() == 1


def test_the_digest_of_a_dataset_without_one_sees_every_bit_of_a_small_one():
    data = [(torch.tensor([1.0, 2.0]), torch.tensor(3)) for _ in range(4)]
    same = [(torch.tensor([1.0, 2.0]), torch.tensor(3)) for _ in range(4)]
    other = [*same[:3], (torch.tensor([1.0, 2.0]), torch.tensor(4))]
    assert dataset_digest(data) == dataset_digest(same) != dataset_digest(other)


def test_names_and_settings_are_known_without_importing_torch():
    code = "import sys, stabexp.tasks, stabexp.tasks.settings; sys.exit('torch' in sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    assert subprocess.run([sys.executable, "-c", code], env=env, check=False).returncode == 0


def test_a_neighbour_of_the_same_name_in_another_folder_is_another_module(tmp_path):
    for number, folder in enumerate(("one", "two")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.py").write_text(
            "import sizes\n\ndef train(run):\n    import sizes as late\n"
            "    return sizes.WIDTH, late.WIDTH\n"
        )
        (tmp_path / folder / "sizes.py").write_text(f"WIDTH = {number}\n")
    first = load_function("one/train.py:train", base=tmp_path)
    assert first(None) == (0, 0)
    assert load_function("two/train.py:train", base=tmp_path)(None) == (1, 1)
    assert load_function("one/train.py:train", base=tmp_path)(None) == (0, 0)


def test_a_file_in_a_package_may_import_the_package_by_name(tmp_path):
    inner = tmp_path / "project_of_mine" / "training"
    inner.mkdir(parents=True)
    for folder in (inner.parent, inner):
        (folder / "__init__.py").write_text("")
    (inner.parent / "sizes.py").write_text("WIDTH = 7\n")
    (inner / "train.py").write_text(
        "from project_of_mine.sizes import WIDTH\n\ndef train(run):\n    return WIDTH\n"
    )
    assert load_function(f"{inner / 'train.py'}:train", base=None)(None) == 7
