"""docs/boards.md says what there is: every metric, every alert, every option."""

from __future__ import annotations

import re
from pathlib import Path

from experiments.boards_page import PAGE, page
from stabexp.boards.live_steps import COUNTED_BYTES, KEPT_STEPS
from stabexp.boards.metrics import LAYERS_SHOWN
from stabexp.boards.shown_runs import KEEP_SECONDS, RUNS_SHOWN

TEXT = PAGE.read_text("utf-8")


def test_its_tables_are_made_from_the_metrics_and_the_rules():
    assert page(TEXT) == TEXT


def test_its_options_are_those_of_the_command(stabexp_command):
    shown = stabexp_command("metrics", "--help").out
    named = set(re.findall(r"`(--[a-z]+)", TEXT))
    assert named
    assert all(option in shown for option in named)


def test_its_figures_are_those_of_the_code():
    assert f"`--layers {LAYERS_SHOWN}`" in TEXT
    assert f"at most {RUNS_SHOWN}, the newest" in TEXT
    assert f"({KEEP_SECONDS / 3600:.0f} h)" in TEXT
    assert f"{COUNTED_BYTES >> 20} MiB a scrape" in TEXT
    assert f"last measured {KEPT_STEPS:,} steps ago" in TEXT


def test_the_decision_is_kept():
    assert (Path(PAGE).parent / "decisions" / "0023-boards-read-files.md").exists()
