"""The import contracts hold, and each of them fails when it is broken."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LAYERS = "A package imports only what is below it"
ACYCLIC = "No two modules import each other, directly or around"
PURE = "What decides, records or shows never imports torch"
MLFLOW = "MLflow is known to two files"
OPTUNA = "Optuna is known to one file"
TRAINERS = "Other people's trainers are known to integrations/ alone"
TRAINING = "Nothing that trains can reach MLflow, however indirectly"


def lint(folder):
    """Return every contract's result on the package in `folder`: name → "KEPT" or "BROKEN"."""
    done = subprocess.run(
        [
            Path(sys.executable).with_name("lint-imports"),
            "--no-cache",
            "--config",
            ROOT / "pyproject.toml",
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    results = dict(re.findall(r"^(.*) (KEPT|BROKEN)", done.stdout, re.MULTILINE))
    assert results, done.stdout + done.stderr
    assert (done.returncode == 0) == ("BROKEN" not in results.values()), done.stdout
    return results


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(
        ROOT / "stabexp", tmp_path / "stabexp", ignore=shutil.ignore_patterns("__pycache__")
    )
    return tmp_path


def test_every_import_contract_is_kept(copy):
    results = lint(copy)
    assert set(results) == {LAYERS, ACYCLIC, PURE, MLFLOW, OPTUNA, TRAINERS, TRAINING}
    assert set(results.values()) == {"KEPT"}


@pytest.mark.parametrize(
    ("planted", "broken"),
    [
        pytest.param({"errors.py": "import stabexp.records"}, LAYERS, id="an import upwards"),
        pytest.param(
            {"detectors/plateau.py": "import stabexp.interventions"},
            LAYERS,
            id="an import of a neighbour on the same layer",
        ),
        pytest.param({"novelty.py": ""}, LAYERS, id="a module without a layer"),
        pytest.param(
            {"tracking/manifest.py": "import stabexp.tracking.run_directory"},
            ACYCLIC,
            id="two modules that import each other",
        ),
        pytest.param({"bisection/search.py": "import torch"}, PURE, id="torch in the search"),
        pytest.param(
            {
                "reporting/words.py": "import stabexp.reporting.wide",
                "reporting/wide.py": "import torch",
            },
            PURE,
            id="torch behind another module",
        ),
        pytest.param(
            {"config.py": "def late() -> None:\n    import torch"}, PURE, id="torch on first use"
        ),
        pytest.param({"tracking/shipping.py": "import mlflow"}, MLFLOW, id="mlflow elsewhere"),
        pytest.param({"bisection/bisector.py": "import optuna"}, OPTUNA, id="optuna elsewhere"),
        pytest.param(
            {"training/parts.py": "import accelerate"}, TRAINERS, id="a trainer in the core"
        ),
        pytest.param(
            {"training/run.py": "import stabexp.tracking.uploader"},
            TRAINING,
            id="training that could load mlflow",
        ),
    ],
)
def test_a_contract_fails_on(copy, planted, broken):
    for name, line in planted.items():
        with (copy / "stabexp" / name).open("a", encoding="utf-8") as file:
            file.write(f"\n\n{line}\n")
    results = lint(copy)
    assert [name for name, result in results.items() if result == "BROKEN"] == [broken]
