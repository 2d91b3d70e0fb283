"""The command line answers at once, because nothing heavy is loaded before it is needed."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = Path(sys.executable).with_name("stabexp")
HEAVY = {"torch", "mlflow", "optuna", "pandas", "pydantic", "numpy", "sqlalchemy", "jinja2"}

CPU_SECONDS = 0.6
"""Twice what is allowed on a quiet machine (0.3 s): test machines are shared."""


def loaded_after(code):
    """Return the top-level modules that a new process has loaded after running `code`."""
    tail = "\nimport sys\nprint('\\n'.join(sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code + tail], capture_output=True, text=True, check=True
    )
    return {line.partition(".")[0] for line in done.stderr.splitlines()}


def test_help_loads_nothing_heavy():
    loaded = loaded_after(
        "import sys\nsys.argv = ['stabexp', '--help']\nfrom stabexp.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code"
    )
    assert "stabexp" in loaded
    assert loaded & HEAVY == set()


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        pytest.param("import stabexp", HEAVY, id="the package"),
        pytest.param(
            "import stabexp.experiment", {"torch", "mlflow", "optuna"}, id="a file's schema"
        ),
        pytest.param("import stabexp.training", {"mlflow", "optuna", "pandas"}, id="training"),
        pytest.param(
            "import stabexp.bisection.replay", {"mlflow", "optuna", "pandas"}, id="a trial"
        ),
        pytest.param("import stabexp.api", {"mlflow", "torch"}, id="the Python interface"),
    ],
)
def test_importing_loads_only_what_is_needed_for(code, absent):
    assert loaded_after(code) & absent == set()


def test_help_costs_little():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    shown = subprocess.run([COMMAND, "--help"], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "bisect" in shown.stdout
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert spent <= CPU_SECONDS
