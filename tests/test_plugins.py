"""Plug-ins of the user's own: named in the file, replayed in workers, missed when they are gone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import stabexp
from stabexp import monitors
from stabexp.config import key_parts
from stabexp.errors import ConfigError
from stabexp.experiment import given, load, open_source, program
from stabexp.interventions import INTERVENTIONS
from stabexp.schema import catalogue, experiment_schema

pytestmark = pytest.mark.usefixtures("no_uploader_left")

PLUGINS = '''"""Plug-ins of a test."""

from pydantic import Field, PrivateAttr

from stabexp.detectors import Detector, Finding
from stabexp.interventions import Intervention
from stabexp.stabilisers import Stabiliser


class Ceiling(Detector):
    """Diverged when a loss lies above a limit."""

    limit: float = Field(gt=0)
    """The limit."""

    @property
    def history(self) -> int:
        return 1

    def check(self, records):
        loss = records[-1].loss
        if not loss > self.limit:
            return None
        return Finding(value=loss, limit=self.limit, message="too high", onset=records[-1].step)


class Slower(Intervention):
    """Lowers the rate."""

    dose: float = Field(gt=0)
    """Factor on the rate."""

    def lr_scale(self, step, *, warmup_steps):
        return self.dose


class Waning(Stabiliser):
    """Lowers the rate from step to step, by what it counted itself."""

    _steps: int = PrivateAttr(0)

    def after_step(self, record, history):
        self._steps += 1

    def lr_scale(self, step):
        return 0.99**self._steps

    def state_dict(self):
        return {"steps": self._steps}

    def load_state_dict(self, state):
        self._steps = state["steps"]


class Half(Detector):
    """Says nothing of when."""

    @property
    def history(self) -> int:
        return 1


def helper():
    pass
'''
EXPERIMENT = """\
name: own
steps: 60
task: mlp
optimizer: {name: sgd, lr: 2.0, momentum: 0.9}
checkpoint: {every: 5}
detectors: {"plugins.py:Ceiling": {limit: 4.0}}
stabilisers: ["plugins.py:Waning"]
"""


@pytest.fixture
def folder(tmp_path):
    """A project in a folder that is not the working directory."""
    place = tmp_path / "project"
    place.mkdir()
    (place / "plugins.py").write_text(PLUGINS, "utf-8")
    (place / "exp.yaml").write_text(EXPERIMENT, "utf-8")
    return place


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('detectors: {"plugin.py:Ceiling": {}}', "did you mean 'plugins.py'?"),
        ('detectors: {"plugins.py:Celing": {}}', "did you mean 'Ceiling'?"),
        ('detectors: {"plugins.py:helper": {}}', "is not a detector; derive it from stabexp.det"),
        ('detectors: {"plugins.py:Waning": {}}', "is not a detector"),
        ('detectors: {"plugins.py:Half": {}}', "does not define check; add it to the class"),
        ('detectors: {"plugins.py:Ceiling": {}}', "plugins.py:Ceiling.limit: is missing"),
        ('detectors: {"plugins.py:Ceiling": {limitt: 1}}', "did you mean 'limit'?"),
        ('detectors: {"nowhere.at_all:Ceiling": {}}', "no module named 'nowhere'"),
        ("detectors: {ceiling: {}}", "unknown detector; allowed: divergence"),
        ("detectors: {ceiling: {}}", "your own is 'path/to/file.py:Class'"),
        ('interventions: {"plugins.py:Slower": -1}', "expected greater than 0, found '-1'"),
        ('stabilisers: {"plugins.py:Ceiling": {limit: 1}}', "is not a stabiliser"),
        ('monitors: "plugins.py:Waning"', "is not a monitor"),
    ],
)
def test_a_mistake_is_told_with_its_line(folder, line, message):
    kept = "".join(f"{each}\n" for each in EXPERIMENT.splitlines()[:4])
    (folder / "exp.yaml").write_text(kept + line + "\n", "utf-8")
    with pytest.raises(ConfigError) as caught:
        load(folder / "exp.yaml")
    assert str(caught.value).startswith(f"{folder / 'exp.yaml'}:5: {line.partition(':')[0]}.")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("key", "parts"),
    [
        ("batch.size", ("batch", "size")),
        ("detectors.watch.py:Watch.limit", ("detectors", "watch.py:Watch", "limit")),
        ("detectors.a/b.c.py:Watch", ("detectors", "a/b.c.py:Watch")),
        ("interventions.pkg.mod:Slow", ("interventions", "pkg.mod:Slow")),
        ("train.name", ("train", "name")),
    ],
)
def test_the_name_of_a_class_is_one_part_of_a_key(key, parts):
    assert key_parts(key) == parts


def test_an_argument_can_be_replaced_on_the_command_line_and_in_python(folder, monkeypatch):
    typed = given(folder / "exp.yaml", ["detectors.plugins.py:Ceiling.limit=7"])
    monkeypatch.chdir(folder)
    named = given(
        "exp.yaml", settings={"detectors": {"plugins.py:Ceiling": {"limit": 7}}}
    ).experiment
    assert float(typed.experiment.detectors["plugins.py:Ceiling"]["limit"]) == 7
    assert named.detectors == {"plugins.py:Ceiling": {"limit": "7"}}


def test_a_module_beside_the_file_is_found(folder):
    text = EXPERIMENT.replace("plugins.py:", "plugins:")
    (folder / "exp.yaml").write_text(text, "utf-8")
    experiment, _ = load(folder / "exp.yaml")
    assert set(experiment.stabilisers) == {"plugins:Waning"}


def test_its_files_are_part_of_the_fingerprint_but_a_detectors_are_not(folder):
    experiment, _ = load(folder / "exp.yaml")
    assert program(experiment, base=folder).code == ((folder / "plugins.py").resolve(),)
    alone = experiment.model_copy(update={"stabilisers": {}})
    assert program(alone, base=folder).code == ()


def test_the_catalogue_lists_what_a_file_has(folder, monkeypatch):
    monkeypatch.chdir(folder)
    lines = list(catalogue("plugins.py"))
    assert "plugins.py:Ceiling: Diverged when a loss lies above a limit." in lines
    assert "    dose: Factor on the rate." in lines
    (folder / "empty.py").write_text("", "utf-8")
    with pytest.raises(ConfigError, match=r"list empty\.py: no plug-in in it"):
        list(catalogue("empty.py"))


@pytest.mark.parametrize("kind", ["detectors", "monitors", "stabilisers"])
def test_the_schema_lets_such_names_pass(kind):
    mapping = experiment_schema()["properties"][kind]["anyOf"][-1]
    assert {"type": "string", "pattern": r"^.+:[A-Za-z_][\w.]*$"} in (
        mapping["propertyNames"]["anyOf"]
    )


def test_built_in_names_stay_what_they_are():
    assert [type(each).__name__ for each in monitors.build({"layers": {}})] == ["Layers"]
    assert not any(":" in name for name in INTERVENTIONS)


@pytest.mark.slow
def test_a_run_is_replayed_and_bisected_in_workers_and_not_without_the_file(folder, nowhere):
    result = stabexp.run(folder / "exp.yaml", root="runs")
    assert result.divergence is not None
    assert result.divergence.detector == "ceiling"
    control, _ = stabexp.replay(result.run_id, root="runs")
    assert control.mismatch is None
    assert control.divergence == result.divergence
    slower, _ = stabexp.replay(
        result.run_id, ["plugins.py:Slower=0.01"], root="runs", from_step=0, steps=20
    )
    assert slower.spec.variable == "plugins.py:Slower"
    assert slower.divergence is None
    source = json.loads((result.directory / "source.json").read_text("utf-8"))
    assert open_source(source)[1] == folder
    verdict = stabexp.bisect(
        result.run_id, root="runs", workers=1, variables=["learning_rate"], budget=60
    )
    assert [each.answer for each in verdict.path if each.node == "control"] == ["yes"]
    (folder / "plugins.py").unlink()
    with pytest.raises(ConfigError, match=r"detectors\.plugins\.py:Ceiling: no such file"):
        stabexp.bisect(result.run_id, root="runs", again=True, workers=1)
    assert not Path("runs/runs", result.run_id, "bisects", "bisect-3", "verdict.json").exists()
