"""The measurement behind docs/findings.md, on one healthy program and one with a fault."""

from __future__ import annotations

from experiments.findings import record, table, trainings


def test_a_healthy_program_raises_no_alarm_and_a_faulty_one_is_found():
    draws = [(draw, fixed) for draw, fixed in trainings() if draw.family == "mlp"]
    healthy = next(pair for pair in draws if pair[0].cause == "healthy")
    faulty = next(pair for pair in draws if pair[0].entry.name == "nan_sample" and not pair[1])
    text = "\n".join(table([record(draw, fixed=fixed) for draw, fixed in (healthy, faulty)]))
    assert "| **any finding of `stabexp diagnose`** | **0 of 1** |" in text
    assert "1 runs that diverged for one known cause: a finding in all but 0" in text
