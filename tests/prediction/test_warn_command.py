"""`stabexp warn`: a run that stabexp recorded, and a log that it did not."""

from __future__ import annotations

import json

import pytest
from command_line import NOWHERE
from prediction.curves import grows, records

import stabexp
from stabexp.errors import ConfigError

EXPERIMENT = f"""\
name: calm
steps: 60
threads: 1
task: {{name: mlp}}
optimizer: {{name: sgd, lr: 0.05}}
stabilisers: {{early_warning: {{measure: lower_rate}}}}
tracking: {{uri: "{NOWHERE}"}}
"""


def test_a_recorded_run_that_stayed_healthy_has_no_warning(tmp_path, stabexp_command):
    (tmp_path / "calm.yaml").write_text(EXPERIMENT)
    run = stabexp.run(tmp_path / "calm.yaml", root=tmp_path / "runs", drain_seconds=0)
    done = stabexp_command("warn", run.run_id, "--root", tmp_path / "runs")
    assert done.code == 0
    assert done.out.startswith(f"{run.run_id}: no warning in steps 0 to 59\n")
    assert "not looked at: attention scores" in done.out


def test_a_foreign_log_is_judged_by_the_curves_it_has(tmp_path, stabexp_command):
    losses = [r.loss if r.step < 220 else r.loss + (r.step - 220) / 4 for r in records()]
    rate = grows(1e-3, rate=0.02)
    rows = [f"{step},{loss},{rate(step)}\n" for step, loss in enumerate(losses)]
    (tmp_path / "metrics.csv").write_text("step,train_loss,lr\n" + "".join(rows))
    done = stabexp_command("warn", tmp_path / "metrics.csv", "--json")
    found = json.loads(done.out)
    (warning,) = found["warnings"]
    assert warning["kind"] == "rate_ramp"
    assert 150 < warning["step"] < found["left"]
    assert found["lead"] == found["left"] - warning["step"]
    assert any("no gradient norm" in text for text in found["not_seen"])
    assert stabexp.warn(tmp_path / "metrics.csv").plain() == found


def test_a_file_that_is_no_log_is_told(tmp_path):
    (tmp_path / "notes.csv").write_text("one,two\na,b\n")
    with pytest.raises(ConfigError, match=r"notes\.csv"):
        stabexp.warn(tmp_path / "notes.csv")
